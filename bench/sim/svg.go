package sim

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// The plot's measures, in pixels.
const (
	plotWidth, plotHeight = 340, 240
	plotLeft, plotTop     = 56, 46
	plotGap               = 70
	legendRow             = 18
	legendColumns         = 5
)

// hues are the lines' colours, readable on light and dark; ours is the first.
var hues = []string{"#d1242f", "#0969da", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#4d7c0f", "#0a7ea4", "#6e7781", "#ea580c"}

// panel is one diagram of the plot.
type panel struct {
	title string
	y     func(p *Measured) float64
	log   bool
	low   float64
	high  float64
}

// WriteSVG draws the results. For several loads it draws interactive goodput and the
// 95th percentile of time to first token over load, for one load the percentiles of
// each policy.
func WriteSVG(w io.Writer, results []*Result) error {
	var b strings.Builder
	names := policiesOf(results)
	rows := (len(names) + legendColumns - 1) / legendColumns
	width, height := 2*plotWidth+plotLeft+plotGap+20, plotTop+plotHeight+44+rows*legendRow
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#737b85">`+"\n", width, height)
	b.WriteString("<style>.axis{stroke:#8c959f} .grid{stroke:#8c959f;opacity:.25}</style>\n")
	fmt.Fprintf(&b, `<text x="%d" y="18" font-size="14">%s</text>`+"\n", plotLeft, html.EscapeString(results[0].Trace+", interactive requests"))
	if len(results) > 1 {
		overLoad(&b, results, names)
	} else {
		percentiles(&b, results[0])
	}
	for i, name := range names {
		x, y := plotLeft+i%legendColumns*150, plotTop+plotHeight+44+i/legendColumns*legendRow
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="14" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", x, y-5, hue(name), x+20, y, html.EscapeString(name))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// hue is a policy's colour, the same in every plot.
func hue(name string) string {
	if i := slices.Index(Policies(), name); i >= 0 {
		return hues[i]
	}
	return "#57606a"
}

func policiesOf(results []*Result) (names []string) {
	for i := range results[0].Policies {
		names = append(names, results[0].Policies[i].Policy)
	}
	return names
}

// ofInteractive is a metric of the interactive class, or of all requests where a
// trace has none in it.
func ofInteractive(p *Measured, key string) float64 {
	if metrics := p.Mean.Classes[interactive]; metrics != nil {
		return value(metrics, key)
	}
	return value(p.Mean.All, key)
}

// scale maps a value to a height.
func (p *panel) scale(v float64) float64 {
	v = min(max(v, p.low), p.high)
	if p.log {
		return plotTop + plotHeight*(1-math.Log(v/p.low)/math.Log(p.high/p.low))
	}
	return plotTop + plotHeight*(1-(v-p.low)/(p.high-p.low))
}

func (p *panel) frame(b *strings.Builder, left float64) {
	fmt.Fprintf(b, `<text x="%g" y="%d">%s</text>`+"\n", left, plotTop-8, p.title)
	ticks := []float64{0, 20, 40, 60, 80, 100}
	if p.log {
		ticks = ticks[:0]
		for v := p.low; v <= p.high*1.001; v *= 10 {
			ticks = append(ticks, v)
		}
	}
	for _, v := range ticks {
		y := p.scale(v)
		fmt.Fprintf(b, `<line class="grid" x1="%g" y1="%.1f" x2="%g" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y, left+plotWidth, y, left-6, y+4, v)
	}
	fmt.Fprintf(b, `<path class="axis" fill="none" d="M%g %d v%d h%d"/>`+"\n", left, plotTop, plotHeight, plotWidth)
}

// overLoad draws a line for each policy, over the loads.
func overLoad(b *strings.Builder, results []*Result, names []string) {
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, c *Result) int { return int(max(-1, min(1, 1e9*(a.Load-c.Load)))) })
	least, most := 0.95*results[0].Load, results[len(results)-1].Load
	panels := []panel{
		{title: "goodput, % of arrivals", y: func(p *Measured) float64 { return 100 * ofInteractive(p, "goodput") }, high: 100},
		{title: "time to first token of the served, p95, s", y: func(p *Measured) float64 { return ofInteractive(p, "ttft_p95_s") }, log: true, low: 0.1, high: 1000},
	}
	for i := range panels {
		p, left := &panels[i], float64(plotLeft+i*(plotWidth+plotGap))
		p.frame(b, left)
		fmt.Fprintf(b, `<text x="%g" y="%d" text-anchor="middle">load</text>`+"\n", left+plotWidth/2, plotTop+plotHeight+30)
		at := func(r *Result) float64 { return left + plotWidth*(r.Load-least)/(1.03*most-least) }
		for k, r := range results {
			if k > 0 && at(r)-at(results[k-1]) < 30 {
				continue
			}
			fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%.3g</text>`+"\n", at(r), plotTop+plotHeight+16, r.Load)
		}
		for n := len(names) - 1; n >= 0; n-- { // ours last, on top
			var d strings.Builder
			for _, r := range results {
				v := p.y(&r.Policies[n])
				if math.IsNaN(v) {
					continue
				}
				fmt.Fprintf(&d, "%s%.1f %.1f", map[bool]string{true: "M", false: " L"}[d.Len() == 0], at(r), p.scale(v))
			}
			fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="%g" d="%s"/>`+"\n", hue(names[n]), map[bool]float64{true: 3, false: 1.5}[n == 0], d.String())
		}
	}
}

// percentiles draws bars: goodput, and time to first token at three percentiles.
func percentiles(b *strings.Builder, r *Result) {
	goodput := panel{title: "goodput, % of arrivals", high: 100}
	first := panel{title: "time to first token of the served, p50, p95, p99, s", log: true, low: 0.01, high: 10000}
	left, right := float64(plotLeft), float64(plotLeft+plotWidth+plotGap)
	goodput.frame(b, left)
	first.frame(b, right)
	each := plotWidth / float64(len(r.Policies))
	bar := func(p *panel, x, width, v float64, name string, opacity float64) {
		if !math.IsNaN(v) {
			y := p.scale(v)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" opacity="%g"/>`+"\n", x, y, width, plotTop+plotHeight-y, hue(name), opacity)
		}
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		x := each * (float64(i) + 0.1)
		bar(&goodput, left+x, each*0.8, 100*ofInteractive(p, "goodput"), p.Policy, 1)
		for k, key := range []string{"ttft_p50_s", "ttft_p95_s", "ttft_p99_s"} {
			bar(&first, right+x+each*0.8/3*float64(k), each*0.8/3-0.5, ofInteractive(p, key), p.Policy, 1-0.25*float64(k))
		}
	}
}
