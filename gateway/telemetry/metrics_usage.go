package telemetry

import (
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
	switch {
	case u.known[tenant]:
	case len(u.known) >= u.max:
		return tenantOther
	case u.known == nil:
		u.known = map[string]bool{tenant: true}
	default:
		u.known[tenant] = true
	}
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
