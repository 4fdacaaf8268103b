// Package apiserver starts a real kube-apiserver over a real etcd for the tests of
// one package, with the driver's CRDs installed. The programs come from the project's program
// cache, which `make programs` fills.
//
// Use it from TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }
//
// and in each test take a namespace of one's own with Namespace.
package apiserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/azuredisk-csi/azuredisk/charts"
	"github.com/azuredisk-csi/azuredisk/internal/kube"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/fakeapi"
	"github.com/azuredisk-csi/azuredisk/internal/testkit/programs"
)

// startTimeout is for a machine on which a whole cluster runs as well.
const startTimeout = 2 * time.Minute

// config of the server that Run started, and the address of its etcd.
var (
	config  *rest.Config
	etcdURL string
)

// Run starts the server, runs the tests, stops the server, and returns the exit code. It starts no
// server to list the tests.
func Run(m *testing.M) int {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" {
		return m.Run()
	}
	assets, err := os.MkdirTemp("", "azuredisk-apiserver-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		return 1
	}
	defer os.RemoveAll(assets)
	if err := collect(assets); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		return 1
	}
	definitions, err := crds()
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		return 1
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		CRDs:                     definitions,
		ControlPlaneStartTimeout: startTimeout,
	}
	// Without them the server needs a default route, and writes its address into an EndpointSlice
	// that no test reads.
	environment.ControlPlane.GetAPIServer().Configure().Set("advertise-address", "127.0.0.1").Set("endpoint-reconciler-type",
		"none")
	config, err = environment.Start()
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "apiserver: stop:", err)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver: start:", err)
		return 1
	}
	etcdURL = environment.ControlPlane.Etcd.URL.String()
	return m.Run()
}

// crds are the driver's.
func crds() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(charts.CRDs, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := charts.CRDs.ReadFile(path)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		all = append(all, crd)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = errors.New("the chart has no CRDs")
	}
	return all, err
}

// collect links the programs from the cache into one directory.
func collect(into string) error {
	for _, program := range []string{"kube-apiserver", "kubectl", "etcd"} {
		path, err := programs.Find(program)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(into, program)); err != nil {
			return err
		}
	}
	return nil
}

// Config returns a copy of the configuration for the server, with all rights. Calls are paced as
// the driver's programs pace theirs.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	if config == nil {
		t.Fatal("the server was not started: TestMain must call apiserver.Run")
	}
	own := rest.CopyConfig(config)
	kube.Pace(own, 100, 200)
	return own
}

// Etcd returns the address of the server's etcd, for tests that look at what is stored.
func Etcd(t testing.TB) string {
	t.Helper()
	if etcdURL == "" {
		t.Fatal("the server was not started: TestMain must call apiserver.Run")
	}
	return etcdURL
}

// Kubeconfig writes a kubeconfig for the server, and returns its path.
func Kubeconfig(t testing.TB) string {
	t.Helper()
	server, path := Config(t), filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {Server: server.Host, CertificateAuthorityData: server.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {
			ClientCertificateData: server.CertData,
			ClientKeyData:         server.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Scheme has Kubernetes' types and the driver's.
func Scheme(testing.TB) *k8sruntime.Scheme { return fakeapi.Scheme() }

// Client returns a client that reads from the server.
func Client(t testing.TB) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(Config(t), client.Options{Scheme: Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Namespace makes a namespace for the test and returns its name.
func Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := Client(t).Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
