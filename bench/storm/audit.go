package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// audit is what a storm left.
type audit struct {
	faults  map[string]int
	ended   map[string]int
	lines   int
	sum     tokens
	charged map[string]int // by tenant
	wrong   []string
}

// tokens are sums over requests.
type tokens struct{ Computed, Cached, Completion int }

// line is what is read of a line of a usage file.
type line struct {
	Seq        int
	ID         string
	Tenant     string
	Outcome    string
	Prompt     int `json:"prompt_tokens"`
	Cached     int `json:"cached_tokens"`
	Computed   int `json:"computed_tokens"`
	Completion int `json:"completion_tokens"`
	Charged    bool
}

// calm waits until nothing runs or waits, and Redis answers every gateway again.
func (s *scene) calm(ctx context.Context) error {
	return until(ctx, "all requests have ended and Redis answers", func() bool {
		for _, g := range s.gateways {
			m, err := g.metrics()
			if err != nil || m["forebay_requests_running"]+m["forebay_requests_waiting"]+m["forebay_budget_degraded"] > 0 {
				g.told = 0
				return false
			}
			if !g.asked() {
				return false
			}
		}
		return true
	})
}

// asked has the tenants with budgets send one more request each, so that the gateway
// tells the store all that it knows. A tenant whose request was answered sends no other:
// those of one gateway would use up what the others wait for.
func (g *gateway) asked() bool {
	for _, tenant := range tenants[g.told:2] {
		request, err := http.NewRequest(http.MethodPost, g.api+"/v1/chat/completions", strings.NewReader(`{"model":"forebay-demo","messages":[{"role":"user","content":"the last"}],"max_tokens":1}`))
		if err != nil {
			return false
		}
		request.Header.Set("Authorization", "Bearer "+tenant)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		io.Copy(io.Discard, response.Body)
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			return false
		}
		g.told++
	}
	return true
}

// audit compares everything that counts. Counters may lag behind for a moment.
func (s *scene) audit(ctx context.Context, c *crowd, counts map[string]int) (a *audit, err error) {
	again := until(ctx, "the sums agree", func() bool {
		a = &audit{faults: counts, ended: c.ended, charged: map[string]int{}}
		err = a.compare(s, c)
		return err == nil && len(a.wrong) == 0
	})
	if err == nil && a != nil {
		return a, nil // with what is wrong after the wait
	}
	if err == nil {
		err = again
	}
	return nil, err
}

func (a *audit) fail(format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
}

func (a *audit) compare(s *scene, c *crowd) error {
	seen := map[string]line{}
	for _, g := range s.gateways {
		if err := a.gateway(g, seen); err != nil {
			return err
		}
	}
	for id, t := range c.told {
		l, ok := seen[id]
		if !ok || l.Outcome != "ok" || l.Prompt != t.Prompt || l.Cached != t.Details.Cached || l.Completion != t.Completion {
			a.fail("the client of %s was told %+v, its line is %+v", id, t, l)
		}
	}
	for _, g := range s.gateways {
		if err := a.budgets(g); err != nil {
			return err
		}
	}
	return nil
}

// gateway compares an engine, its gateway's metrics, and its usage file.
func (a *audit) gateway(g *gateway, seen map[string]line) error {
	m, err := g.metrics()
	if err != nil {
		return err
	}
	lines, err := g.lines()
	if err != nil {
		return err
	}
	var sum tokens
	for i, l := range lines {
		if _, twice := seen[l.ID]; twice || l.Seq != i+1 {
			a.fail("line %d of %s has the number %d and the request %s, seen before: %v", i+1, g.usage, l.Seq, l.ID, twice)
		}
		seen[l.ID] = l
		sum.Computed, sum.Cached, sum.Completion = sum.Computed+l.Computed, sum.Cached+l.Cached, sum.Completion+l.Completion
		if l.Charged {
			a.charged[l.Tenant] += l.Computed + l.Completion
		}
	}
	engine := tokens{int(m[`forebay_engine_tokens_total{kind="prefill"}`]), int(m[`forebay_engine_tokens_total{kind="cached"}`]), int(m[`forebay_engine_tokens_total{kind="decode"}`])}
	counted := tokens{int(m[`forebay_tokens_total{kind="prompt"}`]) - int(m[`forebay_tokens_total{kind="cached"}`]), int(m[`forebay_tokens_total{kind="cached"}`]), int(m[`forebay_tokens_total{kind="completion"}`])}
	if engine != counted || counted != sum {
		a.fail("%s: the engine says %+v, the metrics %+v, the usage file %+v", g.api, engine, counted, sum)
	}
	for _, name := range []string{"forebay_requests_running", "forebay_requests_waiting", "forebay_usage_lost_lines_total", "forebay_cancel_unanswered_total", "forebay_kv_pages_used"} {
		if m[name] != 0 {
			a.fail("%s: %s is %v", g.api, name, m[name])
		}
	}
	if int(m["forebay_usage_lines_total"]) != len(lines) {
		a.fail("%s: %v lines were counted, the file has %d", g.api, m["forebay_usage_lines_total"], len(lines))
	}
	a.lines += len(lines)
	a.sum = tokens{a.sum.Computed + sum.Computed, a.sum.Cached + sum.Cached, a.sum.Completion + sum.Completion}
	return nil
}

// budgets compares what was charged with what the quotas have lost.
func (a *audit) budgets(g *gateway) error {
	response, err := http.Get(g.admin + "/debug/budgets?format=json")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var page struct {
		Degraded bool
		Limits   []struct {
			Tenant, Limit string
			Used          float64
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return err
	}
	if page.Degraded {
		a.fail("%s: Redis does not answer", g.api)
	}
	for _, l := range page.Limits {
		switch {
		case l.Limit == "tokens_per_month" && int(l.Used) != a.charged[l.Tenant]:
			a.fail("%s: %s has used %v of its month; its requests were charged %d", g.api, l.Tenant, int(l.Used), a.charged[l.Tenant])
		case l.Limit == "concurrency" && l.Used != 0:
			a.fail("%s: %s holds %v places", g.api, l.Tenant, l.Used)
		}
	}
	return nil
}

// lines reads the gateway's usage files, in their order.
func (g *gateway) lines() (all []line, err error) {
	names, err := filepath.Glob(g.usage + ".*")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range append(names, g.usage) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var l line
			if err := json.Unmarshal(s.Bytes(), &l); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", name, err, s.Text())
			}
			all = append(all, l)
		}
	}
	return all, nil
}

// metrics reads the gateway's metrics, by sample.
func (g *gateway) metrics() (map[string]float64, error) {
	response, err := http.Get(g.admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	all := map[string]float64{}
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		if at := strings.LastIndexByte(s.Text(), ' '); at > 0 && !strings.HasPrefix(s.Text(), "#") {
			if x, err := strconv.ParseFloat(s.Text()[at+1:], 64); err == nil {
				all[s.Text()[:at]] = x
			}
		}
	}
	return all, nil
}

func (a *audit) print(w io.Writer) {
	for _, part := range []struct {
		what string
		n    map[string]int
	}{{"Faults", a.faults}, {"Requests, as clients saw them end", a.ended}, {"Tokens charged, by tenant", a.charged}} {
		fmt.Fprintln(w, part.what)
		for _, name := range slices.Sorted(maps.Keys(part.n)) {
			fmt.Fprintf(w, "%10d  %s\n", part.n[name], name)
		}
	}
	fmt.Fprintf(w, "%d requests ran: %d tokens computed, %d cached, %d generated\n", a.lines, a.sum.Computed, a.sum.Cached, a.sum.Completion)
	for _, text := range a.wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	if len(a.wrong) == 0 {
		fmt.Fprintln(w, "All sums agree.")
	}
}
