package picker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

const poolText = `# a pool
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: p}
spec:
  selector:
    matchLabels: {app: forebay}
  targetPorts: [{number: 8080}]
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceObjective
metadata: {name: late, annotations: {forebay.io/class: batch}}
spec: {priority: -1, poolRef: {name: p}}
---
apiVersion: v1
kind: Service
metadata: {name: late}
`

// TestPoolAndObjectives: the pool, the proxy's subset and the objective say who may be
// picked, in which class, and when nobody.
func TestPoolAndObjectives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pool.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(poolText)
	w := newWorld(t, Config{Pool: file, ShedWait: time.Second})
	late := map[string]string{objectiveHeader: "late"}
	for name, c := range map[string]struct {
		proxy
		wait   time.Duration
		nobody bool
		want   proxied
	}{
		"members":                  {want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080"}},
		"a subset":                 {proxy: proxy{subset: []any{"10.0.0.2:8080", "10.0.0.3:8080"}}, want: proxied{to: "10.0.0.2:8080"}},
		"a subset of strangers":    {proxy: proxy{subset: []any{"10.9.9.9:1"}}, want: proxied{status: 503}},
		"an empty subset":          {proxy: proxy{subset: []any{}}, want: proxied{status: 503}},
		"nobody is there":          {nobody: true, want: proxied{status: 503}},
		"an objective":             {proxy: proxy{headers: late}, want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080", class: "batch"}},
		"the client's class":       {proxy: proxy{headers: map[string]string{objectiveHeader: "late", classHeader: "interactive"}}, want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080"}},
		"busy, and it may be shed": {proxy: proxy{headers: late}, wait: 2 * time.Second, want: proxied{status: 429}},
		"busy, and it may not":     {wait: 2 * time.Second, want: proxied{to: "10.0.0.1:8080,10.0.0.2:8080"}},
	} {
		w.wait, w.nobody = c.wait, c.nobody
		c.mode = modev3.ProcessingMode_BUFFERED
		got := w.ask(t, c.proxy)
		if got.to != c.want.to || got.class != c.want.class || got.status != c.want.status || got.status != 0 && !strings.Contains(got.why, `{"error":{"code":null,"message":"`) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	w.nobody = false
	health := func(service string) string {
		r, err := w.health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			return err.Error()
		}
		return r.GetStatus().String()
	}
	if got := health("readiness"); got != "SERVING" {
		t.Error(got)
	}
	w.nobody = true
	if got := health("envoy.service.ext_proc.v3.ExternalProcessor") + health("liveness"); got != "NOT_SERVINGSERVING" {
		t.Error(got)
	}
	// A changed file is read again; a wrong one changes nothing.
	w.nobody = false
	now := time.Now()
	for _, step := range []struct{ text, to string }{
		{strings.Replace(poolText, "8080", "9999", 1), "10.0.0.4:9999"}, {"kind: [", "10.0.0.4:9999"}, {strings.Replace(poolText, "app: forebay", "app: other", 1), "10.0.0.3:8080"},
	} {
		write(step.text)
		now = now.Add(time.Minute)
		pool := w.pool.now(now)
		if got := w.members(pool.has); len(got) != 1 || got[0] != step.to {
			t.Errorf("%q: %v", step.text, got)
		}
	}
}

func TestPoolMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":         "it has 0 InferencePools",
		"kind: [":  "not valid YAML",
		"- a\n- b": "it has 0 InferencePools",
		poolText + "---\nkind: InferencePool\nspec: {selector: {a: b}, targetPortNumber: 1}\n":       "it has 2 InferencePools",
		"kind: InferencePool\nmetadata: {name: p}\nspec: {selector: {a: b}}":                         "InferencePool p: spec.targetPorts: is missing",
		"kind: InferencePool\nspec: {targetPorts: [{number: 70000}]}":                                `"70000" is no port`,
		"kind: InferencePool\nspec: {selector: {matchLabels: {a: [b]}}, targetPorts: [{number: 1}]}": "a must be a text",
		strings.Replace(poolText, "poolRef: {name: p}", "poolRef: {name: q}", 1):                     `spec.poolRef.name is "q", and the pool is "p"`,
		strings.Replace(poolText, "priority: -1", "priority: high", 1):                               `"high" is no whole number`,
		strings.Replace(poolText, "name: late, ", "", 1):                                             "its metadata.name is missing",
	} {
		if _, err := parsePool([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	old, err := parsePool([]byte("kind: InferencePool\nmetadata: {name: p}\nspec: {selector: {a: b}, targetPortNumber: 8000}"))
	if err != nil || !old.has("[::1]:8000", map[string]string{"a": "b", "c": "d"}) || old.has("[::1]:8001", map[string]string{"a": "b"}) || old.has("x", nil) {
		t.Errorf("v1alpha2: %+v, %v", old, err)
	}
}
