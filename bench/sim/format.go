package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseJSON reads a line as Mooncake writes it, or with more fields as a load
// generator records a run.
func parseJSON(line []byte) (arrival, error) {
	var fields struct {
		Timestamp *float64 `json:"timestamp"` // milliseconds
		Input     *int     `json:"input_length"`
		Output    *int     `json:"output_length"`
		Blocks    []uint64 `json:"hash_ids"`
		Tenant    string   `json:"tenant"`
		Class     string   `json:"class"`
		recordedFields
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return arrival{}, fmt.Errorf("it is not a request in JSON: %w", err)
	}
	if fields.Timestamp == nil || fields.Input == nil {
		return arrival{}, errors.New("it needs timestamp (in milliseconds) and input_length")
	}
	at, err := seconds(*fields.Timestamp / 1e3)
	a := arrival{at, Request{Prompt: *fields.Input, Blocks: fields.Blocks, Tenant: fields.Tenant, Class: fields.Class}}
	if fields.Output != nil {
		a.request.Output = *fields.Output
	}
	if err == nil {
		err = fields.complete(&a.request)
	}
	return a, err
}

// columns are the places of the values in a line of CSV, -1 for a missing one.
type columns struct{ at, prompt, output, tenant, class int }

// The names of columns, in small letters without spaces and underscores, as
// Azure, BurstGPT and Vidur write them.
var columnNames = map[string]func(*columns) *int{
	"timestamp": func(c *columns) *int { return &c.at }, "arrivedat": func(c *columns) *int { return &c.at },
	"contexttokens": func(c *columns) *int { return &c.prompt }, "requesttokens": func(c *columns) *int { return &c.prompt },
	"numprefilltokens": func(c *columns) *int { return &c.prompt }, "inputlength": func(c *columns) *int { return &c.prompt },
	"generatedtokens": func(c *columns) *int { return &c.output }, "responsetokens": func(c *columns) *int { return &c.output },
	"numdecodetokens": func(c *columns) *int { return &c.output }, "outputlength": func(c *columns) *int { return &c.output },
	"tenant": func(c *columns) *int { return &c.tenant }, "class": func(c *columns) *int { return &c.class },
}

func parseHeader(line []byte) (*columns, error) {
	c := &columns{-1, -1, -1, -1, -1}
	for i, name := range cells(line) {
		name = strings.ToLower(strings.NewReplacer(" ", "", "_", "").Replace(name))
		place, known := columnNames[name]
		if !known {
			continue
		}
		if at := place(c); *at >= 0 {
			return nil, fmt.Errorf("two columns say the same: %.40q is the second", name)
		} else {
			*at = i
		}
	}
	if c.at < 0 || c.prompt < 0 {
		return nil, errors.New("it is neither JSON nor a header that names TIMESTAMP and ContextTokens")
	}
	return c, nil
}

// cells splits a line of CSV. A cell may be in quotes; it has no comma.
func cells(line []byte) []string {
	cells := strings.Split(string(line), ",")
	for i, cell := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(cell), `"`)
	}
	return cells
}

func (c *columns) parse(line []byte) (a arrival, err error) {
	row := cells(line)
	cell := func(i int) string {
		if i < 0 || i >= len(row) {
			return ""
		}
		return row[i]
	}
	if a.at, err = parseTime(cell(c.at)); err != nil {
		return a, err
	}
	if a.request.Prompt, err = parseTokens(cell(c.prompt)); err != nil {
		return a, fmt.Errorf("prompt: %w", err)
	}
	if text := cell(c.output); text != "" {
		if a.request.Output, err = parseTokens(text); err != nil {
			return a, fmt.Errorf("answer: %w", err)
		}
	}
	a.request.Tenant, a.request.Class = cell(c.tenant), cell(c.class)
	return a, nil
}

func parseTokens(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || x != float64(int(x)) {
		return 0, fmt.Errorf("%.40q is not a number of tokens", text)
	}
	return int(x), nil
}

var timeLayouts = []string{time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339}

// parseTime reads seconds, or a date with a time of day, either with a fraction.
func parseTime(text string) (time.Duration, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return seconds(s)
	}
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			if at.Year() < 1970 || at.Year() > 2200 {
				break
			}
			return time.Duration(at.UnixNano()), nil
		}
	}
	return 0, fmt.Errorf("%.40q is not a time such as 12.5 (seconds) or 2023-11-16 18:15:46.68", text)
}
