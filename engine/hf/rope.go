package hf

import (
	"cmp"
	"math"
	"slices"

	"github.com/forebay-io/forebay/engine/gguf"
)

// rope holds the rope_parameters of one kind of layer.
type rope struct {
	kind     string // default, linear, llama3, yarn or longrope
	dims     int    // of a head, that are rotated
	theta    float64
	factor   float64
	original int // context before scaling
	low      float64
	high     float64
	// of yarn; 0 means absent
	betaFast, betaSlow, magnitude float64
	long, short                   []float64 // of longrope: divisors of the speeds
}

// longRope has two sets of divisors, for contexts over the original one and for others.
const longRope = "longrope"

// ropeParameters lists the keys of all kinds. A key that a kind does not use is
// ignored, as in transformers.
var ropeParameters = []string{
	"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings",
	"low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate",
	"long_factor", "short_factor", "long_mscale", "short_mscale", "max_position_embeddings",
}

const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
	linearAttention  = "linear_attention"
)

// readRopes reads the rope of all layers. In gemma 3 and olmo 3, layers with a window have a
// rope of their own. Configurations from before transformers 5 have rope_scaling
// and keys beside it; newer ones have everything in rope_parameters, with an
// object for each type of layer if these differ.
func (d *description) readRopes(c *config) {
	if d.ropes.read != nil {
		d.ropes.read(d, c)
		return
	}
	parameters, scaling := c.object("rope_parameters"), c.object("rope_scaling")
	theta := c.number("rope_theta", d.theta)
	if d.ropes.localTheta > 0 || d.ropes.local && d.slides != nil {
		var full, sliding *config
		if parameters != nil {
			full, sliding = parameters.object(fullAttention), parameters.object(slidingAttention)
			parameters.checkAllRead()
		}
		if scaling != nil {
			full = scaling
		}
		d.rope = d.readRope(c, full, theta)
		local := theta
		if d.ropes.localTheta > 0 {
			local = c.number("rope_local_base_freq", d.ropes.localTheta)
		}
		d.localRope = d.readRope(c, sliding, local)
		if d.localRope.kind != "default" {
			c.fail("rope_parameters", "scale layers with a window (%s), which is not supported", d.localRope.kind)
		}
		return
	}
	if scaling != nil {
		parameters = scaling
	} else if parameters != nil && parameters.has(fullAttention) {
		nested := parameters.object(fullAttention)
		parameters.ignore(slidingAttention) // no layer has a window
		parameters.checkAllRead()
		parameters = nested
	}
	d.rope = d.readRope(c, parameters, theta)
}

// readRotated reads how much of a head is rotated: at least a pair of its dimensions.
func (d *description) readRotated(c *config, absent float64) float64 {
	const key = "partial_rotary_factor"
	if d.rotated != 0 && c.has("rotary_dim") {
		absent = float64(c.size("rotary_dim", d.headDim)) / float64(d.headDim)
	}
	n := c.number(key, absent)
	switch {
	case d.rotated == 0 && n != 1:
		c.fail(key, "is %v; only 1 is supported", n)
	case !(n > 0 && n <= 1) || int(float64(d.headDim)*n)%2 != 0 || int(float64(d.headDim)*n) == 0:
		c.fail(key, "is %v of a head of %d; that must be an even number of dimensions", n, d.headDim)
	}
	return n
}

// readRope reads one rope from p, which may be nil; theta is the model's default.
func (d *description) readRope(c, p *config, theta float64) rope {
	r := rope{kind: "default", theta: theta, original: d.context}
	rotated := d.readRotated(c, cmp.Or(d.rotated, 1))
	if p != nil {
		rotated = d.readRotated(p, rotated)
	}
	r.dims = int(float64(d.headDim) * rotated)
	if p == nil {
		return r
	}
	r.kind = p.text("rope_type", p.text("type", r.kind))
	r.theta = p.number("rope_theta", theta)
	r.original = p.size("original_max_position_embeddings", r.original)
	if own := c.size("original_max_position_embeddings", r.original); own != r.original {
		r.original = own
	}
	positive := func(key string, absent float64) float64 {
		x := p.number(key, absent)
		if x <= 0 {
			p.fail(key, "is %v or missing; rope_type %s needs a number over 0", x, r.kind)
			return 1
		}
		return x
	}
	switch r.kind {
	case "default":
	case "linear":
		r.factor = positive("factor", 0)
	case "llama3":
		r.factor, r.low, r.high = positive("factor", 0), positive("low_freq_factor", 0), positive("high_freq_factor", 0)
		if r.high <= r.low {
			p.fail("high_freq_factor", "is %v; it must be over low_freq_factor, which is %v", r.high, r.low)
		}
	case "yarn":
		r.factor = positive("factor", float64(d.context)/float64(r.original))
		r.betaFast, r.betaSlow = p.number("beta_fast", 0), p.number("beta_slow", 0)
		r.magnitude = p.yarnMagnitude(r.factor)
		if p.flag("truncate", true) == d.ropes.unrounded { // as the readers of GGUF do it
			p.fail("truncate", "must be %v in this model type", !d.ropes.unrounded)
		}
	case longRope, "su":
		if !d.ropes.long {
			p.fail("rope_type", "is %.60q, which is not supported in this model type", r.kind)
		}
		p.readLongRope(&r, d.context, d.ropes.mscales)
	case "dynamic":
		p.readDynamic(&r, d.ropes.alpha)
	default:
		p.fail("rope_type", "is %.60q; supported: default, linear, llama3, yarn, longrope", r.kind)
	}
	p.ignore(ropeParameters...)
	p.ignore(d.ropes.ignored...)
	p.checkAllRead()
	return r
}

// readLongRope reads phi 3's two sets of divisors (Ding et al., LongRoPE, 2024). The magnitude follows
// from the contexts, or is given by mscales.
func (c *config) readLongRope(r *rope, context int, mscales bool) {
	r.kind = longRope
	for key, to := range map[string]*[]float64{"long_factor": &r.long, "short_factor": &r.short} {
		*to = value[[]float64](c, key, "a list of numbers", nil)
		if len(*to) != r.dims/2 || slices.ContainsFunc(*to, func(x float64) bool { return !(x > 0) }) {
			c.fail(key, "has %d numbers; needed are %d over 0", len(*to), r.dims/2)
		}
	}
	factor := c.number("factor", float64(context)/float64(r.original))
	r.magnitude = 1
	if factor > 1 {
		r.magnitude = math.Sqrt(1 + math.Log(factor)/math.Log(float64(r.original)))
	}
	r.magnitude = c.positive("attention_factor", r.magnitude)
	if !mscales {
		return
	}
	r.magnitude = c.positive("short_mscale", 0)
	if long := c.positive("long_mscale", 0); long != r.magnitude {
		c.fail("long_mscale", "is %v, and short_mscale %v; only equal ones are supported", long, r.magnitude)
	}
}

// readDynamic reads hunyuan's scaling, which is called dynamic and is none: a fixed base.
func (c *config) readDynamic(r *rope, alpha bool) {
	if !alpha || !c.has("alpha") {
		c.fail("rope_type", "is \"dynamic\"; supported: default, linear, llama3, yarn, longrope")
		return
	}
	r.kind = "default"
	r.theta *= math.Pow(c.positive("alpha", 1), float64(r.dims)/float64(max(1, r.dims-2)))
}

// yarnMagnitude returns the factor of queries and keys, 0 if it follows from the
// scaling factor alone.
func (c *config) yarnMagnitude(factor float64) float64 {
	given := c.number("attention_factor", 0)
	a, b := c.number("mscale", 0), c.number("mscale_all_dim", 0)
	if given != 0 || a == 0 || b == 0 {
		return given
	}
	if factor <= 1 {
		return 1
	}
	log := math.Log(factor)
	return (0.1*a*log + 1) / (0.1*b*log + 1)
}

// set writes r's keys as the GGUF converter does.
func (r *rope) set(d *gguf.Draft, arch string) {
	if r.kind == "" { // there is none
		return
	}
	d.Set(arch+".rope.freq_base", float32(r.theta))
	if r.kind != "linear" && r.kind != "yarn" {
		return
	}
	d.Set(arch+".rope.scaling.type", r.kind)
	d.Set(arch+".rope.scaling.factor", float32(r.factor))
	if r.kind == "linear" {
		return
	}
	d.Set(arch+".rope.scaling.original_context_length", uint32(r.original))
	for key, x := range map[string]float64{"yarn_attn_factor": r.magnitude, "yarn_beta_fast": r.betaFast, "yarn_beta_slow": r.betaSlow} {
		if x != 0 {
			d.Set(arch+".rope.scaling."+key, float32(x))
		}
	}
}

// llama3Factors returns the divisor of the frequency of each pair of a head's
// dimensions, in the precision and order of transformers' computation. Pairs with
// a wavelength much shorter than the original context keep their frequency, long
// ones are divided by the factor, and a ramp lies between.
func (r *rope) llama3Factors() []float32 {
	out := make([]float32, r.dims/2)
	low, high := float32(r.low), float32(r.high)
	for i := range out {
		freq := 1 / float32(math.Pow(r.theta, float64(float32(2*i)/float32(r.dims))))
		wave := float32(1/freq) * float32(2*math.Pi)
		switch {
		case float64(wave) < float64(r.original)/r.high:
			out[i] = 1
		case float64(wave) > float64(r.original)/r.low:
			out[i] = float32(r.factor)
		default:
			smooth := (float32(float32(1/wave)*float32(r.original)) - low) / float32(high-low)
			out[i] = 1 / (float32((1-smooth)/float32(r.factor)) + smooth)
		}
	}
	return out
}
