package telemetry

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	specTenantRequests = counter("forebay_tenant_requests_total", "Finished requests that ran, by tenant, and whether they are charged: one that the engine failed before its first token is not. Beyond telemetry.tenants_max tenants the rest are (other).", "tenant", "charged")
	specTenantTokens   = counter("forebay_tenant_tokens_total", "Tokens of requests that are charged, by tenant: computed and cached of prompts, and completion.", "tenant", "kind")
	specTenantCost     = counter("forebay_tenant_cost_total", "What these cost by budget.prices, by tenant.", "tenant")

	specUsageLines   = counter("forebay_usage_lines_total", "Lines written to usage.file.")
	specUsageWaiting = gauge("forebay_usage_waiting_lines", "Lines that wait to be written to usage.file.")
	specUsageLost    = counter("forebay_usage_lost_lines_total", "Lines that were lost, since the disk took none and usage.queue_max was reached, or usage.flush_limit at the stop.")
	specUsageErrors  = counter("forebay_usage_errors_total", "Failed writes and fsyncs of usage.file.")
	specUsageRemoved = counter("forebay_usage_removed_files_total", "Full usage files that were removed, beyond usage.files_max.")
)

// tenantOther is the tenant of those beyond the limit; it is no tenant's name.
const tenantOther = "(other)"

// tenantUsage counts what tenants use, for a bounded number of tenants.
type tenantUsage struct {
	max                    int
	requests, tokens, cost *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]bool // guarded by mu
	// uses are by tenant and key; guarded by mu.
	keysMax int
	uses    map[[2]string]*Use
}

// Use is what a key of a tenant has used since the start. Refunded requests ran and
// are not charged; the rest counts charged ones.
type Use struct {
	Tenant     string  `json:"tenant"`
	Key        string  `json:"key"` // "" for requests without a named key
	Requests   uint64  `json:"requests"`
	Refunded   uint64  `json:"refunded"`
	Computed   uint64  `json:"computed_tokens"`
	Cached     uint64  `json:"cached_tokens"`
	Completion uint64  `json:"completion_tokens"`
	Cost       float64 `json:"cost"`
}

// Uses are what all keys have used since the start, by tenant and key. Those beyond
// telemetry.keys_max are one, of the tenant (other).
func (r *Recorder) Uses() []Use {
	u := &r.metrics.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]Use, 0, len(u.uses))
	for _, use := range u.uses {
		all = append(all, *use)
	}
	slices.SortFunc(all, func(a, b Use) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Key, b.Key)) })
	return all
}

// count adds r to the use of its key.
func (u *tenantUsage) count(r *Record) {
	u.mu.Lock()
	defer u.mu.Unlock()
	by := [2]string{r.Tenant, r.Key}
	if u.uses[by] == nil && len(u.uses) >= u.keysMax {
		by = [2]string{tenantOther, ""}
	}
	use := u.uses[by]
	if use == nil {
		use = &Use{Tenant: by[0], Key: by[1]}
		u.uses[by] = use
	}
	if r.Refunded {
		use.Refunded++
		return
	}
	use.Requests++
	use.Computed += uint64(r.ComputedTokens)
	use.Cached += uint64(r.CachedTokens)
	use.Completion += uint64(r.CompletionTokens)
	use.Cost += r.Cost
}

func (u *tenantUsage) observe(r *Record) {
	if r.Dispatched == 0 {
		return
	}
	tenant, charged := u.label(r.Tenant), "true"
	if r.Refunded {
		charged = "false"
	}
	u.requests.WithLabelValues(tenant, charged).Inc()
	u.count(r)
	if r.Refunded {
		return
	}
	u.tokens.WithLabelValues(tenant, "computed").Add(float64(r.ComputedTokens))
	u.tokens.WithLabelValues(tenant, "cached").Add(float64(r.CachedTokens))
	u.tokens.WithLabelValues(tenant, "completion").Add(float64(r.CompletionTokens))
	u.cost.WithLabelValues(tenant).Add(r.Cost)
}

// label is the tenant in the metrics.
func (u *tenantUsage) label(tenant string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.known[tenant] && len(u.known) >= u.max {
		return tenantOther
	}
	u.known[tenant] = true
	return tenant
}

// UsageCounts count the lines of the usage export, since the start.
type UsageCounts struct {
	Written, Lost, Errors, FilesRemoved uint64
	Waiting                             int
}

// CountUsage makes the metrics show the counts that read returns at each scrape.
func (r *Recorder) CountUsage(read func() UsageCounts) { r.metrics.lines.Store(&read) }

func collectUsage(ch chan<- prometheus.Metric, c UsageCounts) {
	ch <- specUsageLines.value(float64(c.Written))
	ch <- specUsageWaiting.value(float64(c.Waiting))
	ch <- specUsageLost.value(float64(c.Lost))
	ch <- specUsageErrors.value(float64(c.Errors))
	ch <- specUsageRemoved.value(float64(c.FilesRemoved))
}
