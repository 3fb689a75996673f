package model

// This file has the mixtures of experts that came after those of config_families.go.

// readDenseBeside reads which layers of a mixture are dense: the first ones, and all
// but every step-th.
func (k *keys) readDenseBeside(c *Config, step int) {
	leading, _ := k.whole("leading_dense_block_count")
	for i := range c.Layers {
		if uint64(i) < leading || (i+1)%step != 0 {
			c.Layers[i].Mixture, c.Layers[i].FF = false, k.size("feed_forward_length")
		}
	}
}

// readShared reads the width of the experts that every token uses, which are
// one: of a width that a key gives, or of as many experts as a key counts.
func (k *keys) readShared(c *Config) {
	count, _ := k.whole("expert_shared_count")
	if count > expertsMax {
		k.fail("expert_shared_count", "is %d; allowed are up to %d", count, expertsMax)
	}
	c.SharedFF = int(min(count, expertsMax)) * c.ExpertFF
	if width := k.sizeOrZero("expert_shared_feed_forward_length"); width > 0 {
		c.SharedFF = width
	}
	if c.SharedFF > sizeMax {
		k.fail("expert_shared_count", "makes a width of %d; allowed are up to %d", c.SharedFF, sizeMax)
	}
}

// readQwen2MoE: the weights are the softmax of all experts, as it is.
func readQwen2MoE(k *keys, c *Config) {
	k.needExperts(c)
	readQwen2(k, c)
	k.readRouter(c, Router{})
	k.readShared(c)
	c.SharedGated = c.SharedFF > 0
}

func readOLMoE(k *keys, c *Config) {
	k.needExperts(c)
	c.QKNorm = NormAllHeads
	k.readRope(c, ropeKind{pairing: PairHalves})
	k.readRouter(c, Router{})
}

func readGraniteMoE(k *keys, c *Config) {
	k.needExperts(c)
	readGranite(k, c)
	k.readShared(c)
}

func readERNIEMoE(k *keys, c *Config) {
	k.needExperts(c)
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	k.readRouter(c, Router{Normed: true, SumAdd: 1e-12})
	k.readShared(c)
	k.readDenseBeside(c, k.sizeOr("interleave_moe_layer_step", 1))
}

// readGLM4MoE: only the largest models norm queries and keys, which no key says. The
// norm before the feed-forward layer has the name of another norm.
func readGLM4MoE(k *keys, c *Config) {
	k.needExperts(c)
	c.FFNormName = "post_attention_norm"
	if _, normed := k.file.Tensor("blk.0.attn_q_norm.weight"); normed {
		c.QKNorm = NormEachHead
	}
	k.readRope(c, ropeKind{pairing: PairHalves})
	k.readRouter(c, Router{Sigmoid: true, Normed: true, SumAdd: 1e-20})
	k.readShared(c)
	k.readDenseBeside(c, 1)
}

func readMiniMaxM2(k *keys, c *Config) {
	k.needExperts(c)
	c.QKNorm = NormAllHeads
	k.readRope(c, ropeKind{pairing: PairHalves})
	k.readRouter(c, Router{Sigmoid: true, Normed: true})
}

func readBailingMoE2(k *keys, c *Config) {
	k.needExperts(c)
	c.QKNorm = NormEachHead
	k.readRope(c, ropeKind{pairing: PairHalves})
	k.readRouter(c, Router{Sigmoid: true, Normed: true, SumAdd: 1e-20})
	k.readShared(c)
	k.readDenseBeside(c, 1)
}

// readPhiMoE: the norms take the mean off, though the key of eps has the other norm's
// name.
func readPhiMoE(k *keys, c *Config) {
	k.needExperts(c)
	c.CentredNorms = true
	if c.ExpertsUsed != 2 {
		k.fail("expert_used_count", "is %d; only 2 are supported in architecture phimoe", c.ExpertsUsed)
	}
	k.routerRead = true
	c.Router = Router{Sparse: true}
	if n, _ := k.whole("attention.sliding_window"); n != 0 {
		k.windows(c, 1)
	}
	k.readRope(c, ropeKind{pairing: PairHalves, long: true})
}

// readLlama4: no key says that three of four layers see chunks, that the fourth has no
// rope but scaled queries instead, and that models with 128 experts norm nothing.
func readLlama4(k *keys, c *Config) {
	k.needExperts(c)
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	if c.Experts != 128 {
		c.QKNorm, c.QKNormLast = NormPlain, true
	}
	c.ChunkTokens = 8192
	c.Temperature = Temperature{Scale: 0.1, Tokens: 8192, Ahead: 1}
	for i := range c.Layers {
		if l := &c.Layers[i]; (i+1)%everyFourth == 0 {
			l.Rope, l.Tempered = NoRope, true
		} else {
			l.Chunked = true
		}
	}
	k.readRouter(c, Router{Sigmoid: true, OnInput: true})
	c.SharedFF = c.ExpertFF
	if width := k.sizeOrZero("expert_shared_feed_forward_length"); width > 0 {
		c.SharedFF = width
	}
	k.readDenseBeside(c, k.sizeOr("interleave_moe_layer_step", 1))
}
