// The YuniKorn scheduler for one test control plane.
//
// The released command always opens its web pages on port 9080 of every interface, so only one can run on a machine.
// This one leaves them out and, once YuniKorn schedules, answers /readyz on the loopback address that it is given.
//
// Environment: KUBECONFIG says which cluster, NAMESPACE where YuniKorn's two ConfigMaps are.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	corelog "github.com/apache/yunikorn-core/pkg/log"

	"github.com/apache/yunikorn-core/pkg/entrypoint"
	"github.com/apache/yunikorn-k8shim/pkg/client"
	"github.com/apache/yunikorn-k8shim/pkg/conf"
	"github.com/apache/yunikorn-k8shim/pkg/log"
	"github.com/apache/yunikorn-k8shim/pkg/plugin/predicates"
	"github.com/apache/yunikorn-k8shim/pkg/shim"
)

func main() {
	ready := flag.String("ready-address", "127.0.0.1:9089", "host:port that answers /readyz once pods are scheduled")
	flag.Parse()
	if err := schedule(); err != nil {
		fmt.Fprintln(os.Stderr, "yunikorn:", err)
		os.Exit(1)
	}
	if err := answer(*ready); err != nil {
		fmt.Fprintln(os.Stderr, "yunikorn:", err)
		os.Exit(1)
	}
}

// schedule reads the configuration from the cluster and returns when the scheduling loop runs in the background.
func schedule() error {
	predicates.EnableOptionalKubernetesFeatureGates()
	configMaps, err := client.LoadBootstrapConfigMaps()
	if err != nil {
		return fmt.Errorf("reading the ConfigMaps: %w", err)
	}
	if err := conf.UpdateConfigMaps(configMaps, true); err != nil {
		return fmt.Errorf("applying the ConfigMaps: %w", err)
	}
	corelog.InitializeLogger(log.RootLogger(), log.GetZapConfigs())
	manualSchedule, withWebapp := false, false
	core := entrypoint.StartAllServicesWithParams(manualSchedule, withWebapp)
	return shim.NewShimScheduler(core.RMProxy, conf.GetSchedulerConf(), configMaps).Run()
}

func answer(address string) error {
	http.HandleFunc("/readyz", func(response http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(response, "ok")
	})
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second}
	return server.ListenAndServe()
}
