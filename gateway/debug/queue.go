package debug

import (
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/internal/wire"
)

// QueuePage has the requests that wait and run, as GET /debug/queue?format=json
// gives them. Times are milliseconds; a list has at most a thousand requests of a group.
type QueuePage struct {
	Classes  []QueueClass   `json:"classes"`
	Tenants  []QueueTenant  `json:"tenants"`
	Waiting  []QueueWaiting `json:"waiting"` // in the order in which they will start, of one group after another
	Running  []QueueRunning `json:"running"`
	Brownout int            `json:"brownout"`
	Degraded bool           `json:"limiter_degraded"`
	// Upstreams are the servers that are relayed to; none before an own engine.
	Upstreams []wire.UpstreamReport `json:"upstreams,omitempty"`
}

// QueueClass is one class.
type QueueClass struct {
	Group     string  `json:"group,omitempty"` // of engines with a queue of their own; "" is the only one
	Name      string  `json:"name"`
	Mode      string  `json:"mode"`
	Waiting   int     `json:"waiting"`
	Running   int     `json:"running"`
	Bytes     int     `json:"waiting_bytes"`
	Share     float64 `json:"share"`
	BacklogMS float64 `json:"backlog_ms"`
	// Margin is the factor on predicted waits, when they are compared with its goal.
	Margin  float64 `json:"margin"`
	Refused uint64  `json:"refused"`
	Demoted uint64  `json:"demoted"`
	// Revoked are those refused or demoted after they had been promised their goal.
	Revoked uint64 `json:"revoked"`
}

// QueueTenant is one tenant's work in one class.
type QueueTenant struct {
	Group     string  `json:"group,omitempty"`
	Name      string  `json:"name"`
	Class     string  `json:"class"`
	Waiting   int     `json:"waiting"`
	Running   int     `json:"running"`
	DeficitMS float64 `json:"deficit_ms"`
	ServedMS  float64 `json:"served_ms"`
}

// QueueWaiting is a waiting request.
type QueueWaiting struct {
	Group    string  `json:"group,omitempty"`
	ID       string  `json:"id"`
	Tenant   string  `json:"tenant"`
	Class    string  `json:"class"`
	Demoted  bool    `json:"demoted"`
	Long     bool    `json:"long"`
	WaitedMS float64 `json:"waited_ms"`
	// StartsMS counts from now; it is negative while nothing starts it as things are:
	// its class is paused, or no engine runs.
	StartsMS  float64 `json:"starts_ms"`
	PrefillMS float64 `json:"prefill_ms"`
	CostMS    float64 `json:"cost_ms"`
	Uncached  int     `json:"uncached_tokens"`
	Why       string  `json:"why"`
}

// QueueRunning is a running request.
type QueueRunning struct {
	Group      string  `json:"group,omitempty"`
	ID         string  `json:"id"`
	Tenant     string  `json:"tenant"`
	Class      string  `json:"class"`
	Long       bool    `json:"long"`
	RanMS      float64 `json:"ran_ms"`
	Tokens     int     `json:"tokens"`
	FirstToken bool    `json:"first_token"`
}

// queuePage is the queue at this moment.
func (p *Pages) queuePage() *QueuePage {
	ms := func(d time.Duration) float64 { return milliseconds(int64(d)) }
	v := p.Admission.View()
	q := &QueuePage{Classes: []QueueClass{}, Tenants: []QueueTenant{}, Waiting: []QueueWaiting{}, Running: []QueueRunning{}, Brownout: v.Brownout, Degraded: p.LimiterDegraded(), Upstreams: p.Engine.State().Upstreams}
	for _, c := range v.Classes {
		q.Classes = append(q.Classes, QueueClass{c.Group, c.Name, c.Mode.String(), c.Waiting, c.Running, c.WaitingBytes, c.Share, ms(c.Backlog), c.Margin, c.Refused, c.Demoted, c.Revoked})
	}
	for _, t := range v.Tenants {
		q.Tenants = append(q.Tenants, QueueTenant{t.Group, t.Name, t.Class, t.Waiting, t.Running, ms(t.Deficit), ms(t.Served)})
	}
	for _, w := range v.Waiting {
		starts := ms(w.Starts)
		if w.Starts == admission.StartsUnknown {
			starts = -1
		}
		q.Waiting = append(q.Waiting, QueueWaiting{w.Group, w.ID, w.Tenant, w.Class, w.Demoted, w.Long, ms(w.Waited), starts, ms(w.Prefill), ms(w.Cost), w.Uncached, w.Why.String()})
	}
	for _, r := range v.Running {
		q.Running = append(q.Running, QueueRunning{r.Group, r.ID, r.Tenant, r.Class, r.Long, ms(r.Ran), r.Tokens, r.FirstToken})
	}
	return q
}
