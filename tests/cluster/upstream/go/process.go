// The process of Kyu that a suite gets in place of Kueue's manager.

package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/kueue/pkg/kyurecord"
	"sigs.k8s.io/kueue/pkg/kyurecord/scrape"
)

const (
	namespace  = "kueue-system"
	configName = "kueue-manager-config"
	configKey  = "controller_manager_config.yaml"
	startup    = 90 * time.Second
	ending     = 20 * time.Second
)

type kyuProcess struct {
	command       *exec.Cmd
	ended         chan struct{}
	configuration map[string]any
	kubernetes    *kubernetes.Clientset
	forget        func()
}

var started int

// startKyu starts a process with the settings that the setup of a suite gives to Kueue's controllers.
func startKyu(cfg *rest.Config, env *envtest.Environment, setup func()) *kyuProcess {
	kyurecord.Setup.Lock()
	defer kyurecord.Setup.Unlock()
	kyurecord.Reset()
	setup()
	client, err := kubernetes.NewForConfig(cfg)
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	token := prepareNamespace(client, cfg)
	folder, err := os.MkdirTemp("", "kyu-")
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	health, metrics := freeAddress(), freeAddress()
	host, port, _ := net.SplitHostPort(freeAddress())
	configuration := kyurecord.Configuration()
	given, _ := configuration["metrics"].(map[string]any)
	if given == nil {
		given = map[string]any{}
	}
	given["bindAddress"] = metrics
	configuration["metrics"] = given
	configuration["health"] = map[string]any{"healthProbeBindAddress": health}
	configuration["leaderElection"] = map[string]any{"leaderElect": false}
	configuration["internalCertManagement"] = map[string]any{"enable": false}
	configuration["webhook"] = map[string]any{"certDir": env.WebhookInstallOptions.LocalServingCertDir}
	configuration["visibilityServer"] = map[string]any{"bindAddress": host, "bindPort": json.Number(port)}
	p := &kyuProcess{configuration: configuration, kubernetes: client, ended: make(chan struct{})}
	p.writeConfiguration()
	write(filepath.Join(folder, "kubeconfig"), env.KubeConfig)
	text, err := yaml.Marshal(kyurecord.WithGates(configuration))
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	write(filepath.Join(folder, "configuration.yaml"), text)
	options := env.WebhookInstallOptions
	words := []string{
		os.Getenv("KYU_CONTROLLER"), "controller",
		"--kubeconfig", filepath.Join(folder, "kubeconfig"),
		"--config", filepath.Join(folder, "configuration.yaml"),
		"--webhook-bind-address", fmt.Sprintf("%s:%d", options.LocalServingHost, options.LocalServingPort),
	}
	p.command = exec.Command(os.Getenv("KYU_PYTHON"), words...)
	p.command.Env = os.Environ()
	if !kyurecord.Schedules() && os.Getenv("KYU_ALWAYS_SCHEDULES") == "" {
		p.command.Env = append(p.command.Env, "KYU_WITHOUT_SCHEDULER=1")
	}
	started++
	log, err := os.Create(filepath.Join(os.Getenv("KYU_LOGS"), fmt.Sprintf("kyu-%d-%d.log", os.Getpid(), started)))
	gomega.ExpectWithOffset(2, err).NotTo(gomega.HaveOccurred())
	_, _ = log.Write(append(text, '\n'))
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	gomega.ExpectWithOffset(2, p.command.Start()).To(gomega.Succeed())
	go func() {
		_ = p.command.Wait()
		_ = log.Close()
		close(p.ended)
	}()
	p.waitUntilReady(health)
	scrape.Use(metrics, token)
	p.forget = kyurecord.OnGates(p.writeConfiguration)
	return p
}

// waitUntilReady returns when the process follows the cluster and answers webhooks.
func (p *kyuProcess) waitUntilReady(health string) {
	deadline := time.Now().Add(startup)
	for time.Now().Before(deadline) {
		response, err := http.Get("http://" + health + "/readyz")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-p.ended:
			ginkgo.Fail("kyu controller ended at its start", 3)
		case <-time.After(50 * time.Millisecond):
		}
	}
	ginkgo.Fail("kyu controller is not ready", 3)
}

// writeConfiguration gives the settings to the process in the ConfigMap that it follows.
func (p *kyuProcess) writeConfiguration() {
	text, err := yaml.Marshal(kyurecord.WithGates(p.configuration))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	config := &corev1.ConfigMap{Data: map[string]string{configKey: string(text)}}
	config.Name = configName
	maps := p.kubernetes.CoreV1().ConfigMaps(namespace)
	old, err := maps.Get(context.Background(), configName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(context.Background(), config, metav1.CreateOptions{})
	case err == nil && old.Data[configKey] != config.Data[configKey]:
		_, err = maps.Update(context.Background(), config, metav1.UpdateOptions{})
		// The process has no acknowledgement for settings; it reads them within a round of its loop.
		time.Sleep(300 * time.Millisecond)
	}
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

func (p *kyuProcess) stop() {
	p.forget()
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(ending):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

// prepareNamespace makes the namespace of the installation, and returns a token that may read metrics.
func prepareNamespace(client *kubernetes.Clientset, cfg *rest.Config) string {
	ctx := context.Background()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: namespace}},
	}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	allowExisting(err)
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	allowExisting(err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	allowExisting(err)
	if cfg.BearerToken != "" {
		return cfg.BearerToken
	}
	request, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(
		ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return request.Status.Token
}

func allowExisting(err error) {
	if err != nil && !apierrors.IsAlreadyExists(err) {
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// freeAddress returns an address below the ports that the system gives to outgoing connections.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
}

func write(path string, content []byte) {
	gomega.Expect(os.WriteFile(path, bytes.Clone(content), 0o600)).To(gomega.Succeed())
}

// prepare gives a slow machine time, and takes the API server of KYU_EXISTING, a kubeconfig, with the definitions that it has.
func prepare(env *envtest.Environment) {
	env.CRDInstallOptions.MaxTime = startup
	path := os.Getenv("KYU_EXISTING")
	if path == "" {
		return
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	cfg.QPS, cfg.Burst = 1000, 2000
	env.UseExistingCluster, env.Config = new(true), cfg
	env.CRDDirectoryPaths = nil
	env.WebhookInstallOptions.Paths = nil
	env.KubeConfig, err = os.ReadFile(path)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}
