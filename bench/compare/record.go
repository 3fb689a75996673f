package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/forebay-io/forebay/bench/speed"
)

// record is the result of a comparison.
type record struct {
	Date    string         `json:"date"`
	Command string         `json:"command"`
	CPU     string         `json:"cpu"`
	Flags   []string       `json:"flags"`
	Load    string         `json:"load_average,omitempty"` // of the minute before: other work of the machine
	Rounds  int            `json:"rounds"`
	Threads int            `json:"threads"`
	Engines []engineRecord `json:"engines"` // ours is the first
	// Machine has the medians of Machines, which this engine's runs measured.
	Machine  *speed.Machine   `json:"machine,omitempty"`
	Machines []*speed.Machine `json:"machines"`
	Rows     []*row           `json:"rows"`
}

type engineRecord struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Features string `json:"features,omitempty"`
	Missing  string `json:"missing,omitempty"` // why it was not run
}

// row is one measurement of a model, with a cell for each engine.
type row struct {
	Model string `json:"model"`
	What  string `json:"what"`
	Cells []cell `json:"cells"`
	// Best names the other engine with the highest median. Ratio is our median
	// divided by its median, and Ratios are the ratios of single rounds. All are
	// empty if no other engine ran.
	Best   string    `json:"best,omitempty"`
	Ratio  float64   `json:"ratio,omitempty"`
	Ratios []float64 `json:"ratios,omitempty"`
	// ReadShare is our median share of the read bandwidth while decoding.
	ReadShare  float64   `json:"read_share,omitempty"`
	ReadShares []float64 `json:"read_shares,omitempty"`
}

// cell is an engine's rates, tokens a second.
type cell struct {
	Rates   []float64 `json:"rates"` // by round; 0 where it failed
	Median  float64   `json:"median"`
	Failure string    `json:"failure,omitempty"` // the last
}

// row returns the row of a measurement, and adds it if it is new.
func (r *record) row(model, what string) *row {
	for _, row := range r.Rows {
		if row.Model == model && row.What == what {
			return row
		}
	}
	row := &row{Model: model, What: what, Cells: make([]cell, len(r.Engines))}
	for i := range row.Cells {
		row.Cells[i].Rates = make([]float64, r.Rounds)
	}
	r.Rows = append(r.Rows, row)
	return row
}

func prefillName(tokens int) string { return fmt.Sprintf("prefill %d", tokens) }

func decodeName(depth int, streams string) string {
	if streams == "1" {
		return fmt.Sprintf("decode at %d", depth)
	}
	return fmt.Sprintf("decode at %d, %s streams", depth, streams)
}

// take records the result of an engine's job in a round, and returns it as text.
func (r *record) take(engine, round int, model string, j job, results *speed.Results, err error) string {
	rows := map[string]*row{}
	if j.prefill > 0 {
		rows[prefillName(j.prefill)] = r.row(model, prefillName(j.prefill))
	}
	for _, s := range j.streams {
		rows[decodeName(j.depth, s)] = r.row(model, decodeName(j.depth, s))
	}
	e := &r.Engines[engine]
	if err != nil {
		for _, row := range rows {
			row.Cells[engine].Failure = err.Error()
		}
		return fmt.Sprintf("%s failed: %v", e.Name, err)
	}
	e.Version, e.Features = results.Head.Version+results.Head.Binding, results.Head.Features
	if results.Machine != nil {
		r.Machines = append(r.Machines, results.Machine)
	}
	for _, p := range results.Prefills {
		if row := rows[prefillName(p.Tokens)]; row != nil {
			row.Cells[engine].Rates[round] = p.TokensPerS
		}
	}
	for _, d := range results.Decodes {
		if row := rows[decodeName(d.Depth, strconv.Itoa(d.Streams))]; row != nil {
			row.Cells[engine].Rates[round] = d.TokensPerS
			if d.ReadShare > 0 {
				row.ReadShares = append(row.ReadShares, d.ReadShare)
			}
		}
	}
	for what, row := range rows {
		if c := &row.Cells[engine]; c.Rates[round] == 0 {
			c.Failure = "it printed no " + what
		}
	}
	return e.Name
}

// judge computes the medians and ratios of the rounds.
func (r *record) judge() {
	for _, row := range r.Rows {
		row.judge(r.Engines)
	}
	r.Machine = medianMachine(r.Machines)
}

func (w *row) judge(engines []engineRecord) {
	best := 0
	for i := range w.Cells {
		c := &w.Cells[i]
		c.Median = speed.Median(present(c.Rates))
		if i > 0 && c.Median > 0 && (best == 0 || c.Median > w.Cells[best].Median) {
			best = i
		}
	}
	w.ReadShare = speed.Median(w.ReadShares)
	w.Best, w.Ratio, w.Ratios = "", 0, nil
	if best == 0 || w.Cells[0].Median == 0 {
		return
	}
	w.Best, w.Ratio = engines[best].Name, w.Cells[0].Median/w.Cells[best].Median
	for round, ours := range w.Cells[0].Rates {
		if theirs := w.Cells[best].Rates[round]; ours > 0 && theirs > 0 {
			w.Ratios = append(w.Ratios, ours/theirs)
		}
	}
}

// present returns the rates of rounds that did not fail.
func present(rates []float64) []float64 {
	return slices.DeleteFunc(slices.Clone(rates), func(x float64) bool { return x == 0 })
}

// medianMachine returns the median of each rate.
func medianMachine(all []*speed.Machine) *speed.Machine {
	if len(all) == 0 {
		return nil
	}
	of := func(rate func(*speed.Machine) float64) float64 {
		var v []float64
		for _, m := range all {
			v = append(v, rate(m))
		}
		return speed.Median(v)
	}
	m := &speed.Machine{Threads: all[0].Threads, GOPS: map[string]float64{}}
	m.ReadGBs = of(func(m *speed.Machine) float64 { return m.ReadGBs })
	m.CacheGBs = of(func(m *speed.Machine) float64 { return m.CacheGBs })
	for name := range all[0].GOPS {
		m.GOPS[name] = of(func(m *speed.Machine) float64 { return m.GOPS[name] })
	}
	return m
}
