package main

import (
	"fmt"
	"slices"
	"time"
)

// tally has the numbers of one run of one server at one factor. Times are
// milliseconds, rates are a second.
type tally struct {
	Server string  `json:"server"`
	Factor float64 `json:"factor"`
	Run    int     `json:"run"`
	Part   string  `json:"part,omitempty"`

	Offered    int `json:"offered"` // the sum of the next five
	Served     int `json:"served"`
	Refused    int `json:"refused"`
	Revoked    int `json:"revoked"`
	Failed     int `json:"failed"`
	Unfinished int `json:"unfinished"`
	Broken     int `json:"broken"`
	// Unlogged counts requests without a record, where the server has a log.
	Unlogged int `json:"unlogged,omitempty"`

	OfferedRate float64 `json:"offered_per_s"`
	ServedRate  float64 `json:"served_per_s"`
	InTimeRate  float64 `json:"in_time_per_s"`
	// OfCapacity is InTimeRate over Capacity. The shares are of the admitted.
	Capacity     float64 `json:"capacity_per_s"`
	OfCapacity   float64 `json:"in_time_of_capacity"`
	BrokenShare  float64 `json:"broken_of_admitted"`
	RevokedShare float64 `json:"revoked_of_admitted"`

	FirstToken     quantiles `json:"first_token_ms"`
	RefusedGateway quantiles `json:"refusal_gateway_ms"`
	RefusedClient  quantiles `json:"refusal_client_ms"`

	// Tokens a second of the backlog's clients.
	BatchRate   float64 `json:"batch_tokens_per_s,omitempty"`
	OfflineRate float64 `json:"offline_tokens_per_s,omitempty"`

	// Lag is how late requests were sent, ClientShare how much of one processor this
	// program took.
	Lag         quantiles      `json:"lag_ms"`
	ClientShare float64        `json:"client_processors"`
	Reasons     map[string]int `json:"reasons"` // of all that were not served
}

// quantiles of N values; zero without one.
type quantiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func quantilesOf(all []float64) quantiles {
	if len(all) == 0 {
		return quantiles{}
	}
	slices.Sort(all)
	return quantiles{len(all), quantile(all, 0.5), quantile(all, 0.99)}
}

// quantile returns the smallest value with more than the share q of the sorted
// values at or below it.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// count counts the open requests whose time lies in arrived, and the rates of what
// ended in counted.
func count(samples []*sample, arrived, counted span, capacity float64) *tally {
	y := &tally{Capacity: capacity, Reasons: map[string]int{}}
	var first, gateway, client, lag []float64
	inTime := 0
	ended := 0
	seconds := (counted.until - counted.from).Seconds()
	for _, s := range samples {
		switch s.source {
		case batch:
			y.BatchRate += float64(s.answer.inWindow) / seconds
		case offline:
			y.OfflineRate += float64(s.answer.inWindow) / seconds
		}
		if s.source != open {
			continue
		}
		if s.ending == served && counted.holds(s.sent+s.answer.end) {
			ended++
			if !s.broken {
				inTime++
			}
		}
		if !arrived.holds(s.at) {
			continue
		}
		y.add(s)
		lag = append(lag, milliseconds(s.lag()))
		if d, known := s.firstToken(); known {
			first = append(first, milliseconds(d))
		}
		if s.ending == refused {
			client = append(client, milliseconds(s.answer.end))
			if s.log != nil {
				gateway = append(gateway, s.log.Total)
			}
		}
	}
	y.OfferedRate = float64(y.Offered) / (arrived.until - arrived.from).Seconds()
	y.ServedRate, y.InTimeRate = float64(ended)/seconds, float64(inTime)/seconds
	y.OfCapacity = ratio(y.InTimeRate, capacity)
	admitted := float64(y.Offered - y.Refused)
	y.BrokenShare, y.RevokedShare = ratio(float64(y.Broken), admitted), ratio(float64(y.Revoked), admitted)
	y.FirstToken, y.Lag = quantilesOf(first), quantilesOf(lag)
	y.RefusedGateway, y.RefusedClient = quantilesOf(gateway), quantilesOf(client)
	return y
}

// add counts one request.
func (y *tally) add(s *sample) {
	y.Offered++
	counts := [endings]*int{served: &y.Served, refused: &y.Refused, revoked: &y.Revoked, failed: &y.Failed, unfinished: &y.Unfinished}
	*counts[s.ending]++
	if s.broken {
		y.Broken++
	}
	if s.log == nil {
		y.Unlogged++
	}
	if s.ending != served {
		y.Reasons[s.reason()]++
	}
}

// reason names why a request was not served, as exactly as it is known.
func (s *sample) reason() string {
	switch {
	case s.answer.code != "":
		return s.answer.code
	case s.answer.err != nil:
		return "broken answer"
	}
	return s.ending.String()
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// line says how a run went, while it is measured.
func (y *tally) line() string {
	return fmt.Sprintf("run %d, %s%s × %g: %d requests: %d served, %d refused, %d revoked, %d failed, %d unfinished; %d broken; first token %.0f / %.0f ms",
		y.Run, y.Server, part(y.Part), y.Factor, y.Offered, y.Served, y.Refused, y.Revoked, y.Failed, y.Unfinished, y.Broken, y.FirstToken.P50, y.FirstToken.P99)
}

func part(name string) string {
	if name == "" {
		return ""
	}
	return ", " + name
}

// lagMost is the lag at which arrivals are no longer as planned.
const lagMost = 20 * time.Millisecond
