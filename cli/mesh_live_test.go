package cli

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load asks without a pause, by several clients, until stop is called. It counts answers,
// and keeps what went wrong.
type load struct {
	asking sync.WaitGroup
	ended  chan struct{}
	good   atomic.Int64

	mu  sync.Mutex
	bad []string
}

func startLoad(clients int, ask func(client int) error) *load {
	l := &load{ended: make(chan struct{})}
	for i := range clients {
		l.asking.Go(func() {
			for {
				select {
				case <-l.ended:
					return
				default:
				}
				if err := ask(i); err != nil {
					l.mu.Lock()
					l.bad = append(l.bad, err.Error())
					l.mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					continue
				}
				l.good.Add(1)
			}
		})
	}
	return l
}

func (l *load) stop() (good int64, bad []string) {
	close(l.ended)
	l.asking.Wait()
	return l.good.Load(), l.bad
}

// TestRotationDropsNothing: while certificates are replaced, one after the other, no request
// over TLS fails, neither on connections that last nor on new ones.
func TestRotationDropsNothing(t *testing.T) {
	t.Parallel()
	dir, pems, ports := t.TempDir(), t.TempDir(), freePorts(t, 2)
	socket := filepath.Join(t.TempDir(), "api.sock")
	control, secure := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	writeCertificate(t, pems, "0")
	writePolicy(t, dir, "mesh.yaml", fmt.Sprintf(`mesh:
  listeners: [{name: secure, address: %q, certificate: edge}]
  routes: [{name: all, cluster: gateways}]
  clusters: [{name: gateways, endpoints: ["unix:%s"], health: /readyz}]
  certificates: [{name: edge, chain: %q, key: %q}]
`, secure, socket, filepath.Join(pems, "cert.pem"), filepath.Join(pems, "key.pem")))
	startControl(t, dir, control)
	startEnvoy(t, control)
	serve(t, "--listen_socket", socket)
	lasting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	anew := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	ask := func(client int) error {
		by := lasting
		if client%2 == 1 {
			by = anew
		}
		response, err := by.Get("https://" + secure + "/v1/models")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d, %v", response.StatusCode, err)
		}
		return nil
	}
	eventually(t, "Envoy leads to the gateway", func() bool { return ask(1) == nil })
	l := startLoad(2, ask)
	const rotations = 5
	for i := range rotations {
		name := strconv.Itoa(i + 1)
		writeCertificate(t, pems, name)
		eventually(t, "certificate "+name+" is shown", func() bool { return subjectAt(secure) == name })
	}
	if good, bad := l.stop(); len(bad) > 0 || good < 2*rotations {
		t.Errorf("%d answers, and these failed: %q", good, bad)
	}
}

// changesVar is how many changes TestLiveChanges makes, 30 if it is not set.
const changesVar = "FOREBAY_TEST_CHANGES"

// TestLiveChanges: tenants come and go, and limits, weights and goals change, under load, and
// no request of a tenant that stays fails.
func TestLiveChanges(t *testing.T) {
	t.Parallel()
	changes := 30
	if text := os.Getenv(changesVar); text != "" {
		var err error
		if changes, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", changesVar, err)
		}
	}
	dir, own := t.TempDir(), t.TempDir()
	address := "127.0.0.1:" + freePorts(t, 1)[0]
	policy := func(i int) string {
		return fmt.Sprintf(`admission:
  classes: [{name: chat, first_token_goal: %ds}]
  tenants:
  - {name: steady, keys: ["sha256:%x"], weight: %d, limits: {requests_per_minute: %d}}
  - {name: passing-%d, keys: ["sha256:%x"]}
`, 2+i%5, sha256.Sum256([]byte("k")), 1+i%9, 1_000_000+i, i, sha256.Sum256(strconv.AppendInt(nil, int64(i), 10)))
	}
	// A file is replaced as a whole, so that none is read half.
	write := func(i int) {
		part := filepath.Join(dir, ".part")
		if err := os.WriteFile(part, []byte(policy(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(part, filepath.Join(dir, "tenants.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	startControl(t, dir, address)
	bootstrap, _ := run(t, "", "control", "bootstrap", "forebay", "--server", address, "--id", "sidecar-1")
	writePolicy(t, own, "bootstrap.json", bootstrap)
	p := serve(t, "--xds", filepath.Join(own, "bootstrap.json"))
	l := startLoad(2, func(client int) error {
		body := fmt.Sprintf(`{"model":"forebay-demo","stream":%v,"max_tokens":3,"messages":[{"role":"user","content":"Hello"}]}`, client%2 == 1)
		r, err := http.NewRequest("POST", p.url+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer k")
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || strings.Contains(string(text), `"error"`) {
			return fmt.Errorf("status %d, %v: %s", response.StatusCode, err, text)
		}
		return nil
	})
	began := time.Now()
	for i := range changes {
		write(i + 1)
		eventually(t, fmt.Sprintf("change %d holds", i+1), func() bool { return p.askAs(strconv.Itoa(i+1)) == http.StatusOK })
	}
	took := time.Since(began)
	good, bad := l.stop()
	t.Logf("%d changes in %v, %d requests meanwhile", changes, took.Round(time.Second), good)
	if len(bad) > 0 || good < 10 {
		t.Errorf("%d answers, and %d failed: %.3q", good, len(bad), bad)
	}
	if taken, refused := p.metric(`forebay_xds_policies_total{result="taken"}`), p.metric(`forebay_xds_policies_total{result="refused"}`); taken != float64(changes+1) || refused != 0 {
		t.Errorf("%v policies were taken and %v refused; want %d and 0", taken, refused, changes+1)
	}
	if p.askAs("0") != http.StatusUnauthorized {
		t.Error("a tenant that has gone is still served")
	}
}
