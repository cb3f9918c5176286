// Package scrape reads the metrics of the running process in place of the counters of this one.
package scrape

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"regexp"
)

var (
	mutex          sync.Mutex
	address, token string
	client         = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	nameOf         = regexp.MustCompile(`fqName: "([^"]+)"`)
)

// Use makes the metrics of a process those that are read.
func Use(newAddress, newToken string) {
	mutex.Lock()
	defer mutex.Unlock()
	address, token = newAddress, newToken
}

// GetCounterMetricValue returns the value of a counter; 0 if there is no series.
func GetCounterMetricValue(m prometheus.Counter) (float64, error) {
	found, err := find(m)
	return found.GetCounter().GetValue(), err
}

// GetGaugeMetricValue returns the value of a gauge; 0 if there is no series.
func GetGaugeMetricValue(m prometheus.Gauge) (float64, error) {
	found, err := find(m)
	return found.GetGauge().GetValue(), err
}

// GetHistogramMetricCount returns the number of observations; 0 if there is no series.
func GetHistogramMetricCount(m prometheus.Observer) (uint64, error) {
	found, err := find(m.(prometheus.Metric))
	return found.GetHistogram().GetSampleCount(), err
}

func find(m prometheus.Metric) (*dto.Metric, error) {
	own := &dto.Metric{}
	if err := m.Write(own); err != nil {
		return nil, err
	}
	name := nameOf.FindStringSubmatch(m.Desc().String())[1]
	families, err := Families()
	if err != nil {
		return nil, err
	}
	for _, one := range families[name].GetMetric() {
		if covers(one.GetLabel(), own.GetLabel()) {
			return one, nil
		}
	}
	return nil, nil
}

// Series returns the labels and the value of each series of a gauge that has these labels.
func Series(v prometheus.Collector, wanted map[string]string) (labels []map[string]string, values []float64) {
	described := make(chan *prometheus.Desc, 1)
	v.Describe(described)
	name := nameOf.FindStringSubmatch((<-described).String())[1]
	families, err := Families()
	if err != nil {
		panic(err)
	}
	for _, one := range families[name].GetMetric() {
		own := map[string]string{}
		for _, label := range one.GetLabel() {
			own[label.GetName()] = label.GetValue()
		}
		matches := true
		for key, value := range wanted {
			matches = matches && own[key] == value
		}
		if matches {
			labels, values = append(labels, own), append(values, one.GetGauge().GetValue()+one.GetCounter().GetValue())
		}
	}
	return labels, values
}

func covers(labels, wanted []*dto.LabelPair) bool {
	values := map[string]string{}
	for _, one := range labels {
		values[one.GetName()] = one.GetValue()
	}
	for _, one := range wanted {
		if values[one.GetName()] != one.GetValue() {
			return false
		}
	}
	return true
}

// Families returns all metrics of the process.
func Families() (map[string]*dto.MetricFamily, error) {
	mutex.Lock()
	defer mutex.Unlock()
	request, err := http.NewRequest(http.MethodGet, "https://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(response.Body)
}
