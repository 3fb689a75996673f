package sim

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"strconv"
)

// MarshalJSON gives trace, load, seeds, capacity, and for each policy its metrics by
// key, "half_95" with half the widths of their 95 % intervals, and the same by class
// and tenant. A metric without a value is left out.
func (r *Result) MarshalJSON() ([]byte, error) {
	policies := map[string]any{}
	for i := range r.Policies {
		p := &r.Policies[i]
		fields := object(p.Mean.All)
		if r.Seeds > 1 {
			fields["half_95"] = object(p.Half.All)
		}
		fields["classes"], fields["tenants"] = objects(p.Mean.Classes), objects(p.Mean.Tenants)
		policies[p.Policy] = fields
	}
	return json.Marshal(struct {
		Trace    string         `json:"trace"`
		Load     float64        `json:"load"`
		Seeds    int            `json:"seeds"`
		Capacity float64        `json:"capacity_requests_a_second"`
		Policies map[string]any `json:"policies"`
	}{r.Trace, r.Load, r.Seeds, r.Capacity, policies})
}

func object(metrics []Metric) map[string]any {
	fields := map[string]any{}
	for _, m := range metrics {
		if !math.IsNaN(m.Value) && !math.IsInf(m.Value, 0) {
			fields[m.Key] = m.Value
		}
	}
	return fields
}

func objects(groups map[string][]Metric) map[string]any {
	fields := map[string]any{}
	for name, metrics := range groups {
		fields[name] = object(metrics)
	}
	return fields
}

// WriteCSV writes a line for each metric of each policy: over all requests, by
// class and by tenant.
func WriteCSV(w io.Writer, results []*Result) error {
	out := csv.NewWriter(w)
	out.Write([]string{"trace", "load", "seeds", "policy", "of", "name", "metric", "mean", "half_95"}) // Flush has the error
	number := func(x float64) string {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return ""
		}
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	for _, r := range results {
		write := func(policy, of, name string, means, halves []Metric) {
			for i, m := range means {
				out.Write([]string{r.Trace, number(r.Load), strconv.Itoa(r.Seeds), policy, of, name, m.Key, number(m.Value), number(halves[i].Value)})
			}
		}
		for i := range r.Policies {
			p := &r.Policies[i]
			write(p.Policy, "all", "", p.Mean.All, p.Half.All)
			for _, name := range names(p.Mean.Classes) {
				write(p.Policy, "class", name, p.Mean.Classes[name], p.Half.Classes[name])
			}
			for _, name := range names(p.Mean.Tenants) {
				write(p.Policy, "tenant", name, p.Mean.Tenants[name], p.Half.Tenants[name])
			}
		}
	}
	out.Flush()
	return out.Error()
}
