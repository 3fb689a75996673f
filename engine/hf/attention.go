package hf

import (
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
)

// layersMax bounds the lists with one element for each layer.
const layersMax = 1 << 16

// readWindows sets window and slides: the layers that see only the last tokens. A
// window of all layers that is not shorter than the context is ignored.
func (d *description) readWindows(c *config) {
	d.layers = min(d.layers, layersMax) // the tensors of more layers will be missing
	if d.windows == noWindows {
		return
	}
	slides := make([]bool, d.layers)
	switch d.windows {
	case allWindows:
		for i := range slides {
			slides[i] = true
		}
	case qwenWindows:
		first := int(c.number("max_window_layers", 28))
		for i := range slides {
			slides[i] = i >= first
		}
		d.readLayerTypes(c, slides)
		if !c.flag("use_sliding_window", false) {
			slides = nil
		}
	default:
		d.readPeriod(c, slides)
		d.readLayerTypes(c, slides)
	}
	if c.isNull("sliding_window") || string(c.values["sliding_window"]) == "0" {
		d.window = 0
		c.ignore("sliding_window")
	} else if c.has("sliding_window") {
		d.window = c.size("sliding_window", 1)
	}
	switch wide := d.window >= d.context; {
	case !slices.Contains(slides, true):
	case d.windows == mostWindows && d.window == 0:
		c.fail("sliding_window", "is null or 0, though layers have a window")
	case d.window == 0, wide && d.windows != mostWindows && d.windows != maybeWindows:
	case d.windows == qwenWindows:
		c.fail("use_sliding_window", "is true; a window (of %d tokens) is not supported in this model type", d.window)
	default:
		d.slides = slides
	}
}

// readPeriod reads which layers have no window: every so many, or as a text of L for
// layers with a window and G for those without, which is repeated.
func (d *description) readPeriod(c *config, slides []bool) {
	c.ignore("_sliding_window_pattern") // layer_types was made from it
	const key = "sliding_window_pattern"
	if raw := c.values[key]; len(raw) > 0 && raw[0] == '"' {
		pattern := c.text(key, "")
		if strings.Trim(pattern, "LG") != "" || pattern == "" {
			c.fail(key, "is %.60q; allowed are numbers, and texts of L and G", pattern)
			return
		}
		for i := range slides {
			slides[i] = pattern[i%len(pattern)] == 'L'
		}
		return
	}
	period := d.windowPeriod
	if c.number(key, 1) == 0 && d.windows == maybeWindows { // so exaone4 says that there are none
		c.ignore(key)
	} else {
		period = c.size(key, period)
	}
	for i := range slides {
		slides[i] = (i+1)%period != 0
	}
}

// readLayerTypes reads which layers have a window where config.json lists them.
func (d *description) readLayerTypes(c *config, slides []bool) {
	types := c.texts("layer_types")
	if types == nil {
		return
	}
	if len(types) < len(slides) {
		c.fail("layer_types", "has %d layers of %d", len(types), len(slides))
		return
	}
	for i := range slides {
		slides[i] = types[i] == slidingAttention
		if !slides[i] && types[i] != fullAttention {
			c.fail("layer_types", "has %.60q; supported: %s, %s", types[i], fullAttention, slidingAttention)
		}
	}
}

// setKeys writes d's keys as the GGUF converter does.
func (d *description) setKeys(to *gguf.Draft) {
	size := func(key string, n int) { to.Set(d.arch+"."+key, uint32(n)) }
	number := func(key string, x float64) { to.Set(d.arch+"."+key, float32(x)) }
	size("block_count", d.layers)
	size("context_length", d.context)
	size("embedding_length", d.embed)
	size("feed_forward_length", d.ff)
	size("attention.head_count", d.heads)
	size("attention.head_count_kv", d.kvHeads)
	if d.heads > 0 {
		size("attention.key_length", d.headDim)
		size("attention.value_length", d.headDim)
	}
	if d.centred || d.epsOfCentred {
		number("attention.layer_norm_epsilon", d.eps)
	} else {
		number("attention.layer_norm_rms_epsilon", d.eps)
	}
	d.rope.set(to, d.arch)
	d.setExperts(to)
	if d.permute || d.rope.kind != "" && d.rope.dims != d.headDim {
		size("rope.dimension_count", d.rope.dims)
	}
	if d.slides != nil {
		size("attention.sliding_window", d.window)
		d.setPattern(to)
	}
	d.pooling.set(to, d.arch)
	if d.set != nil {
		d.set(d, to)
	}
}

// setPattern writes which layers have the window, where readers would assume others.
func (d *description) setPattern(to *gguf.Draft) {
	for i, slides := range d.slides {
		if d.windowPeriod > 0 && slides != ((i+1)%d.windowPeriod != 0) {
			to.Set(d.arch+".attention.sliding_window_pattern", d.slides)
			return
		}
	}
}
