package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/forebay-io/forebay/xds/control"
	"github.com/forebay-io/forebay/xds/controlpb"
)

// controlMetrics shows a control plane's status as metrics. It implements
// prometheus.Collector.
type controlMetrics struct{ server *control.Server }

var (
	descNodes     = prometheus.NewDesc("forebay_control_nodes", "Connected clients, by kind and by how far the one type is that is furthest behind: ok, sent, behind or refused.", []string{"kind", "state"}, nil)
	descBroken    = prometheus.NewDesc("forebay_control_files_broken", "1 while the policy files as they are now are not served, because of a mistake in them.", nil, nil)
	descTaken     = prometheus.NewDesc("forebay_control_files_taken_timestamp_seconds", "When the policy files were last taken, in seconds since 1970.", nil, nil)
	descTrial     = prometheus.NewDesc("forebay_control_rollout_open", "1 while not all clients get the newest version: it is on trial, or was taken back.", nil, nil)
	descResponses = prometheus.NewDesc("forebay_control_responses_total", "Responses to clients.", nil, nil)
	descRefusals  = prometheus.NewDesc("forebay_control_refusals_total", "Responses that clients refused.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m controlMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descNodes, descBroken, descTaken, descTrial, descResponses, descRefusals} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m controlMetrics) Collect(out chan<- prometheus.Metric) {
	page, _ := m.server.GetStatus(context.Background(), nil) // it cannot fail
	type group struct{ kind, state string }
	counts := map[group]int{}
	for _, kind := range []control.Kind{control.Envoy, control.GRPC, control.Forebay} {
		for _, state := range nodeStates {
			counts[group{string(kind), state}] = 0
		}
	}
	for _, n := range page.Nodes {
		counts[group{n.Kind, worstState(n)}]++
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for g, n := range counts {
		gauge(descNodes, float64(n), g.kind, g.state)
	}
	number := map[bool]float64{true: 1}
	gauge(descBroken, number[page.Error != ""])
	gauge(descTaken, float64(page.TakenUnix))
	gauge(descTrial, number[page.Rollout != ""])
	totals := m.server.Totals()
	out <- prometheus.MustNewConstMetric(descResponses, prometheus.CounterValue, float64(totals.Responses))
	out <- prometheus.MustNewConstMetric(descRefusals, prometheus.CounterValue, float64(totals.Refusals))
}

// nodeStates are the states of stateWord, the best first.
var nodeStates = []string{"ok", "sent", "behind", "refused"}

// worstState is the state of the type with which a node is furthest behind.
func worstState(n *controlpb.Node) string {
	worst := 0
	for _, t := range n.Types {
		for i, state := range nodeStates {
			if stateWord(t) == state {
				worst = max(worst, i)
			}
		}
	}
	return nodeStates[worst]
}

// serveControlAdmin answers metrics and health until stop is called.
func serveControlAdmin(address string, server *control.Server) (stop func(), err error) {
	if address == addressOff {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(controlMetrics{server}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		page, _ := server.GetStatus(context.Background(), nil)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"status": "ready", "version": page.Version, "nodes": len(page.Nodes), "error": page.Error, "rollout": page.Rollout})
	})
	return servePages(ln, mux), nil
}

// servePages answers HTTP until stop is called.
func servePages(ln net.Listener, handler http.Handler) (stop func()) {
	const headerLimit, limit, headerBytesMax = 5 * time.Second, time.Minute, 16 << 10
	pages := &http.Server{Handler: handler, ReadHeaderTimeout: headerLimit, ReadTimeout: limit, WriteTimeout: limit, IdleTimeout: limit, MaxHeaderBytes: headerBytesMax}
	served := make(chan struct{})
	go func() {
		defer close(served)
		pages.Serve(ln)
	}()
	return func() { pages.Close(); <-served }
}

// serveControlAPI answers the control plane's own API, if it is on, until stop is called.
func serveControlAPI(address string, server *control.Server) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	if config := server.TLS(); config != nil {
		ln = tls.NewListener(ln, config)
	}
	return servePages(ln, server.API()), nil
}
