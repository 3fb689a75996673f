package model

import "math"

// Router says how a mixture chooses a token's experts, and how much each counts.
// A score is the router's output for an expert after softmax or sigmoid. A bias,
// where the file has one, changes the choice alone.
type Router struct {
	Sigmoid    bool // not the softmax over all experts
	Groups     int  // experts are chosen from the best groups alone; 0 means from all
	GroupsUsed int
	GroupByTwo bool    // a group is as good as its two best experts together, not as its best
	Normed     bool    // a token's weights add up to Scale
	SumAdd     float64 // is added to the sum that the weights are divided by
	Scale      float64
	Sparse     bool // Phi's sparse mixer
	OnInput    bool // the weight multiplies the expert's input, not its output
}

// SoftmaxOfChosen reports whether the weights are the softmax of the chosen scores,
// which is the renormalised softmax of all.
func (r *Router) SoftmaxOfChosen() bool {
	return !r.Sigmoid && !r.Sparse && r.Groups == 0 && r.Normed && r.SumAdd == 0 && r.Scale == 1
}

// The values of expert_gating_func.
const (
	gatingSoftmax       = 1
	gatingSigmoid       = 2
	gatingSoftmaxChosen = 3 // of the chosen scores, which equals the renormalised softmax
)

// readSoftmaxRouter refuses what another router than the softmax of the chosen
// scores would need, where the architecture has not read its router.
func (k *keys) readSoftmaxRouter() {
	if k.routerRead {
		return
	}
	if n, _ := k.whole("expert_gating_func"); n == gatingSigmoid || n > gatingSoftmaxChosen {
		k.fail("expert_gating_func", "is %d; only softmax (0, 1 and 3) is supported", n)
	}
	if x := k.numberOr("expert_weights_scale", 0); x != 0 && x != 1 {
		k.fail("expert_weights_scale", "is %g; only 1 is supported", x)
	}
	k.onlyBool("expert_weights_norm", true)
	for _, name := range []string{"expert_group_count", "expert_group_used_count"} {
		if n, _ := k.whole(name); n > 1 {
			k.fail(name, "is %d; only 0 and 1 are supported", n)
		}
	}
}

// readRouter reads the router's keys over what the architecture does without them.
func (k *keys) readRouter(c *Config, r Router) {
	k.routerRead = true
	switch n, present := k.whole("expert_gating_func"); {
	case n == gatingSoftmax:
		r.Sigmoid = false
	case n == gatingSigmoid:
		r.Sigmoid = true
	case present && n != 0:
		k.fail("expert_gating_func", "is %d; only softmax (1) and sigmoid (2) are supported in architecture %s", n, c.Architecture)
	}
	r.Scale = float64(k.scale("expert_weights_scale", 1))
	r.Normed = k.boolOr("expert_weights_norm", r.Normed)
	groups, used := k.sizeOr("expert_group_count", 1), k.sizeOr("expert_group_used_count", 1)
	if groups > 1 {
		r.Groups, r.GroupsUsed = groups, used
		r.GroupByTwo = r.Sigmoid
		size := c.Experts / groups
		if c.Experts%groups != 0 || used > groups || r.GroupByTwo && size < 2 || used*size < c.ExpertsUsed {
			k.fail("expert_group_count", "is %d, of which %d are used: that does not fit %d experts, of which %d are used", groups, used, c.Experts, c.ExpertsUsed)
		}
	}
	c.Router = r
}

// choice chooses the experts of one token.
type choice struct {
	chosen []int32   // [ExpertsUsed]
	shares []float32 // [ExpertsUsed]
	scores []float32 // [Experts] the router's output; overwritten
	rank   []float32 // [Experts] scratch: what the choice goes by
}

// take chooses, the best first, and sets the shares.
func (x *choice) take(r *Router, bias []float32) {
	if r.Sparse {
		x.mixSparsely()
		return
	}
	copy(x.rank, x.scores) // softmax and sigmoid keep the order
	if bias != nil || r.Groups > 0 || !r.Sigmoid {
		x.score(r)
		copy(x.rank, x.scores)
	}
	for e := range bias {
		x.rank[e] += bias[e]
	}
	if r.Groups > 0 {
		x.dropGroups(r)
	}
	choose(x.chosen, x.shares, x.rank)
	if bias == nil && r.Groups == 0 && r.Sigmoid {
		x.score(r)
	}
	sum := r.SumAdd
	for i, e := range x.chosen {
		x.shares[i] = x.scores[e]
		sum += float64(x.scores[e])
	}
	by := r.Scale
	if r.Normed {
		by /= sum
	}
	for i := range x.shares {
		x.shares[i] = float32(float64(x.shares[i]) * by)
	}
}

// score replaces the router's outputs by scores.
func (x *choice) score(r *Router) {
	if r.Sigmoid {
		for e, v := range x.scores {
			x.scores[e] = float32(1 / (1 + math.Exp(-float64(v))))
		}
		return
	}
	top, sum := math.Inf(-1), 0.0
	for _, v := range x.scores {
		top = max(top, float64(v))
	}
	for _, v := range x.scores {
		sum += math.Exp(float64(v) - top)
	}
	for e, v := range x.scores {
		x.scores[e] = float32(math.Exp(float64(v)-top) / sum)
	}
}

// dropGroups leaves only the ranks of the best groups. Of equal groups the first
// counts as the better one.
func (x *choice) dropGroups(r *Router) {
	size := len(x.rank) / r.Groups
	worth := func(g int) (worth float32) {
		best, second := float32(math.Inf(-1)), float32(math.Inf(-1))
		for _, v := range x.rank[g*size : (g+1)*size] {
			if v > best {
				best, second = v, best
			} else if v > second {
				second = v
			}
		}
		if r.GroupByTwo {
			return best + second
		}
		return best
	}
	for range r.Groups - r.GroupsUsed {
		last := -1
		for g := range r.Groups {
			if x.rank[g*size] == dropped {
				continue
			}
			if last < 0 || worth(g) <= worth(last) {
				last = g
			}
		}
		if last < 0 { // scores that are no numbers
			return
		}
		for e := range size {
			x.rank[last*size+e] = dropped
		}
	}
}

// dropped is the rank of experts whose group was not chosen.
var dropped = float32(math.Inf(-1))

// sparseReach is twice the router's jitter of Phi-3.5-MoE, which its files do not give.
const sparseReach = 2 * 0.01

// mixSparsely chooses the best expert, then the best of the rest. Each weighs what it
// has in the softmax over those that are near it, relative to their own size.
func (x *choice) mixSparsely() {
	copy(x.rank, x.scores)
	for i := range x.chosen {
		best := 0
		for e, v := range x.rank {
			if v > x.rank[best] {
				best = e
			}
		}
		top, sum := float64(x.rank[best]), 0.0
		for _, v := range x.rank {
			if near := (top - float64(v)) / max(math.Abs(float64(v)), top); !(near > sparseReach) {
				sum += math.Exp(float64(v) - top)
			}
		}
		x.chosen[i], x.shares[i] = int32(best), float32(1/sum)
		x.rank[best] = dropped
	}
}

// choose picks the highest scores; of equal ones the first.
func choose(chosen []int32, best, scores []float32) {
	for r := range chosen {
		at := int32(-1)
		for e, score := range scores {
			if (at < 0 || score > scores[at]) && !taken(chosen[:r], int32(e)) {
				at = int32(e)
			}
		}
		chosen[r], best[r] = at, scores[at]
	}
}

func taken(chosen []int32, e int32) bool {
	for _, c := range chosen {
		if c == e {
			return true
		}
	}
	return false
}
