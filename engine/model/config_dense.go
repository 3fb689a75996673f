package model

// This file has the dense architectures that came after those of config_families.go.

// everyFourth is how often a layer of the families with windows sees the whole
// context, where no key says so.
const everyFourth = 4

// readOLMo2 reads OLMo 2 and 3. The norms stand after attention and feed-forward.
// OLMo 3's windows have the same rope, never scaled.
func readOLMo2(k *keys, c *Config) {
	c.NoPreNorms, c.PostNorms, c.QKNorm = true, true, NormAllHeads
	k.readRope(c, ropeKind{pairing: PairHalves})
	local := k.theta("rope.freq_base_swa", k.theta("rope.freq_base", 10000))
	if n, _ := k.whole("attention.sliding_window"); n == 0 {
		k.name("attention.sliding_window_pattern")
		return
	}
	k.windows(c, everyFourth)
	k.localRope(c, local)
}

// localRope gives layers with a window a rope of their own, which is never scaled.
func (k *keys) localRope(c *Config, theta float64) {
	if k.err != nil {
		return
	}
	r := c.Ropes[0]
	c.Ropes = append(c.Ropes, Rope{Dims: r.Dims, Pairing: r.Pairing, Speeds: speeds(theta, r.Dims), Magnitude: 1})
	for i := range c.Layers {
		if c.Layers[i].WindowTokens > 0 {
			c.Layers[i].Rope = len(c.Ropes) - 1
		}
	}
}

// readEXAONE4 takes the rope from the layers without a window, if there are windows.
func readEXAONE4(k *keys, c *Config) {
	c.NoPreNorms, c.PostNorms, c.QKNorm = true, true, NormEachHead
	k.readRope(c, ropeKind{pairing: PairHalves})
	if n, _ := k.whole("attention.sliding_window"); n == 0 {
		k.name("attention.sliding_window_pattern")
		return
	}
	k.windows(c, everyFourth)
	c.ropeInWindows()
}

// ropeInWindows takes the rope from the layers that see the whole context.
func (c *Config) ropeInWindows() {
	for i := range c.Layers {
		if c.Layers[i].WindowTokens == 0 {
			c.Layers[i].Rope = NoRope
		}
	}
}

func readGLM4(k *keys, c *Config) {
	c.PostNorms, c.FusedGateUp = true, true
	k.readRope(c, ropeKind{pairing: PairNeighbours})
}

func readCohere2(k *keys, c *Config) {
	c.CentredNorms, c.Parallel = true, true
	c.LogitScale = k.scale("logit_scale", 1)
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	k.windows(c, everyFourth)
	c.ropeInWindows()
}

func readHunyuanDense(k *keys, c *Config) {
	c.QKNorm, c.QKNormLast = NormEachHead, true
	k.readRope(c, ropeKind{pairing: PairHalves})
}

// readSeedOSS: the norm before the feed-forward layer has the name of another norm.
func readSeedOSS(k *keys, c *Config) {
	c.FFNormName = "post_attention_norm"
	k.readRope(c, ropeKind{pairing: PairHalves})
}

func readERNIE(k *keys, c *Config) { k.readRope(c, ropeKind{pairing: PairNeighbours}) }

// readMistral3 scales queries more, the further they are beyond the original context.
func readMistral3(k *keys, c *Config) {
	k.refuseExperts(c)
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	const name = "attention.temperature_scale"
	c.Temperature.Scale = k.numberOr(name, 0)
	if k.err != nil || c.Temperature.Scale == 0 {
		return
	}
	if !(c.Temperature.Scale > 0 && c.Temperature.Scale <= 1e3) {
		k.fail(name, "is %g; allowed are numbers from 0 to 1000", c.Temperature.Scale)
	}
	c.Temperature.Tokens = c.Ropes[0].OriginalTokens
	for i := range c.Layers {
		c.Layers[i].Tempered = true
	}
}

func (k *keys) refuseExperts(c *Config) {
	if c.Experts > 0 {
		k.fail("expert_count", "is %d; in architecture %s experts are not supported", c.Experts, c.Architecture)
	}
}
