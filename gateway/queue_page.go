package gateway

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/admission"
)

// QueuePage is what waits and runs, as GET /debug/queue?format=json gives it.
// Times are milliseconds; at most a thousand requests of each list are shown.
type QueuePage struct {
	Classes  []QueueClass   `json:"classes"`
	Tenants  []QueueTenant  `json:"tenants"`
	Waiting  []QueueWaiting `json:"waiting"` // in the order in which they will start
	Running  []QueueRunning `json:"running"`
	Margin   float64        `json:"margin"`
	Brownout int            `json:"brownout"`
	Degraded bool           `json:"limiter_degraded"`
}

// QueueClass is one class.
type QueueClass struct {
	Name      string  `json:"name"`
	Mode      string  `json:"mode"`
	Waiting   int     `json:"waiting"`
	Running   int     `json:"running"`
	Bytes     int     `json:"waiting_bytes"`
	Share     float64 `json:"share"`
	BacklogMS float64 `json:"backlog_ms"`
	Refused   uint64  `json:"refused"`
	Demoted   uint64  `json:"demoted"`
}

// QueueTenant is one tenant's work in one class.
type QueueTenant struct {
	Name      string  `json:"name"`
	Class     string  `json:"class"`
	Waiting   int     `json:"waiting"`
	Running   int     `json:"running"`
	DeficitMS float64 `json:"deficit_ms"`
	ServedMS  float64 `json:"served_ms"`
}

// QueueWaiting is one request that waits.
type QueueWaiting struct {
	ID        string  `json:"id"`
	Tenant    string  `json:"tenant"`
	Class     string  `json:"class"`
	Demoted   bool    `json:"demoted"`
	Long      bool    `json:"long"`
	WaitedMS  float64 `json:"waited_ms"`
	StartsMS  float64 `json:"starts_ms"`
	PrefillMS float64 `json:"prefill_ms"`
	CostMS    float64 `json:"cost_ms"`
	Uncached  int     `json:"uncached_tokens"`
	Why       string  `json:"why"`
}

// QueueRunning is one request that runs.
type QueueRunning struct {
	ID         string  `json:"id"`
	Tenant     string  `json:"tenant"`
	Class      string  `json:"class"`
	Long       bool    `json:"long"`
	RanMS      float64 `json:"ran_ms"`
	Tokens     int     `json:"tokens"`
	FirstToken bool    `json:"first_token"`
}

// queuePage is the picture of this moment.
func (g *Gateway) queuePage() QueuePage {
	ms := func(d time.Duration) float64 { return milliseconds(int64(d)) }
	v := g.admission.View()
	p := QueuePage{Classes: []QueueClass{}, Tenants: []QueueTenant{}, Waiting: []QueueWaiting{}, Running: []QueueRunning{}, Margin: v.Margin, Brownout: v.Brownout}
	p.Degraded = g.budget != nil && g.budget.Degraded()
	for _, c := range v.Classes {
		p.Classes = append(p.Classes, QueueClass{c.Name, c.Mode.String(), c.Waiting, c.Running, c.WaitingBytes, c.Share, ms(c.Backlog), c.Refused, c.Demoted})
	}
	for _, t := range v.Tenants {
		p.Tenants = append(p.Tenants, QueueTenant{t.Name, t.Class, t.Waiting, t.Running, ms(t.Deficit), ms(t.Served)})
	}
	for _, w := range v.Waiting {
		p.Waiting = append(p.Waiting, QueueWaiting{w.ID, w.Tenant, w.Class, w.Demoted, w.Long, ms(w.Waited), ms(w.Starts), ms(w.Prefill), ms(w.Cost), w.Uncached, w.Why.String()})
	}
	for _, r := range v.Running {
		p.Running = append(p.Running, QueueRunning{r.ID, r.Tenant, r.Class, r.Long, ms(r.Ran), r.Tokens, r.FirstToken})
	}
	return p
}

// debugQueue shows who waits and why, for people or as JSON.
func (g *Gateway) debugQueue(c *fasthttp.RequestCtx) *failure {
	switch format := string(c.QueryArgs().Peek("format")); format {
	case "json":
		writeValue(c, g.queuePage())
		return nil
	case "", "html":
	default:
		return &failure{fault: faultInvalid, param: "format", message: "format must be json or html"}
	}
	c.SetContentType("text/html; charset=utf-8")
	h := &c.Response.Header
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	if err := queueTemplate.Execute(c, g.queuePage()); err != nil {
		return asFailure(err)
	}
	return nil
}

const queuePath = "/debug/queue"

// modes are what a class may be set to, by name.
var modes = map[string]admission.Mode{admission.Open.String(): admission.Open, admission.Paused.String(): admission.Paused, admission.Drained.String(): admission.Drained}

// setQueueMode opens, pauses or drains the class that the path names. A page of
// another site must not be able to: a browser tells whose page sends a request.
func (g *Gateway) setQueueMode(c *fasthttp.RequestCtx) *failure {
	h := &c.Request.Header
	if site := string(h.Peek("Sec-Fetch-Site")); site != "" && site != "same-origin" && site != "none" || !new(cors).mayCall(h, c.LocalAddr()) {
		return failed(faultOrigin, "a page of another site may not change the queue")
	}
	args := c.QueryArgs()
	mode, ok := modes[string(args.Peek("mode"))]
	if !ok {
		return &failure{fault: faultInvalid, param: "mode", message: "mode must be one of open, paused, drained"}
	}
	class := strings.TrimPrefix(string(c.URI().PathOriginal()), queuePath+"/")
	if err := g.admission.SetMode(class, mode); err != nil {
		return &failure{fault: faultClassNotFound, message: err.Error()}
	}
	g.log.Info("a class was set by the operator", "class", class, "mode", mode.String())
	if strings.Contains(string(h.Peek("Accept")), "text/html") {
		c.Response.Header.Set("Location", queuePath)
		c.SetStatusCode(fasthttp.StatusSeeOther)
		return nil
	}
	writeValue(c, map[string]string{"class": class, "mode": mode.String()})
	return nil
}

// shortTime is a time of so many milliseconds, in the unit that reads best.
func shortTime(ms float64) string {
	switch {
	case ms == 0:
		return "0"
	case ms < 0:
		return "−" + shortTime(-ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case ms < 120e3:
		return fmt.Sprintf("%.1f s", ms/1e3)
	}
	return fmt.Sprintf("%.0f min", ms/60e3)
}

var queueTemplate = template.Must(template.New("queue").Funcs(template.FuncMap{
	"time": shortTime, "percent": func(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }, "kib": func(n int) string { return fmt.Sprintf("%d KiB", (n+1023)/1024) },
}).Parse(queueHTML))

const queueHTML = `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Queue · Forebay</title>
<style>
:root{color-scheme:light dark;--line:#8884}
body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.05rem;margin:1.6rem 0 .3rem}
div{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .8rem .25rem 0;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right}form{display:inline}button{font:inherit;padding:.1rem .5rem}p{color:#777}
</style></head><body>
<h1>Queue</h1>
<p>{{len .Waiting}} waiting, {{len .Running}} running. Predictions are stretched by {{printf "%.2f" .Margin}}.{{if .Brownout}} Overload: step {{.Brownout}} of the ladder.{{end}}{{if .Degraded}} The shared store of budgets does not answer.{{end}} <a href="?format=json">JSON</a></p>
<h2>Classes</h2><div><table><tr><th>class<th>mode<th class="n">waiting<th class="n">running<th class="n">held<th class="n">share, last minute<th class="n">backlog<th class="n">refused<th class="n">demoted<th></tr>
{{range .Classes}}<tr><td>{{.Name}}<td>{{.Mode}}<td class="n">{{.Waiting}}<td class="n">{{.Running}}<td class="n">{{kib .Bytes}}<td class="n">{{percent .Share}}<td class="n">{{time .BacklogMS}}<td class="n">{{.Refused}}<td class="n">{{.Demoted}}<td>
{{- if ne .Mode "open"}}<form method="post" action="/debug/queue/{{.Name}}?mode=open"><button>open</button></form> {{end}}
{{- if ne .Mode "paused"}}<form method="post" action="/debug/queue/{{.Name}}?mode=paused"><button>pause</button></form> {{end}}
{{- if ne .Mode "drained"}}<form method="post" action="/debug/queue/{{.Name}}?mode=drained"><button>drain</button></form>{{end}}</tr>
{{end}}</table></div>
{{if .Tenants}}<h2>Tenants</h2><div><table><tr><th>tenant<th>class<th class="n">waiting<th class="n">running<th class="n">deficit<th class="n">served, last minute</tr>
{{range .Tenants}}<tr><td>{{.Name}}<td>{{.Class}}<td class="n">{{.Waiting}}<td class="n">{{.Running}}<td class="n">{{time .DeficitMS}}<td class="n">{{time .ServedMS}}</tr>
{{end}}</table></div>{{end}}
<h2>Waiting</h2>{{if .Waiting}}<div><table><tr><th>request<th>tenant<th>class<th>why<th class="n">waited<th class="n">starts in<th class="n">prefill<th class="n">cost<th class="n">tokens<th>lane</tr>
{{range .Waiting}}<tr><td>{{.ID}}<td>{{.Tenant}}<td>{{.Class}}{{if .Demoted}} (demoted){{end}}<td>{{.Why}}<td class="n">{{time .WaitedMS}}<td class="n">{{time .StartsMS}}<td class="n">{{time .PrefillMS}}<td class="n">{{time .CostMS}}<td class="n">{{.Uncached}}<td>{{if .Long}}long{{else}}short{{end}}</tr>
{{end}}</table></div>{{else}}<p>Nothing waits.</p>{{end}}
<h2>Running</h2>{{if .Running}}<div><table><tr><th>request<th>tenant<th>class<th class="n">since<th class="n">tokens<th>lane<th>stage</tr>
{{range .Running}}<tr><td>{{.ID}}<td>{{.Tenant}}<td>{{.Class}}<td class="n">{{time .RanMS}}<td class="n">{{.Tokens}}<td>{{if .Long}}long{{else}}short{{end}}<td>{{if .FirstToken}}decoding{{else}}prefill{{end}}</tr>
{{end}}</table></div>{{else}}<p>Nothing runs.</p>{{end}}
</body></html>
`
