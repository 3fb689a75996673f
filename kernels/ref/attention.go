package ref

// Attention is the work of some query tokens on one KV head. The fields are those of
// kernels.Attention, which documents them.
type Attention struct {
	Out, Q  []float32
	Queries int
	Stride  int
	KVLayout
	K, V    []byte
	Pages   []int32
	KVHead  int
	Group   int
	To      int
	Window  int
	Scale   float32
	SoftCap float32
	Sinks   []float32
	Round   bool // ignored here, like all that follows
	Scores  []float32
	Partial []float32
	Piece   int
}

// Attend computes, for each query i and its query heads g: s[t] =
// Scale·Σ_d Q[g,d]·K[t,d] over the last Window positions t below To+i, bounded by
// SoftCap, p = softmax(s) with the sink's score among them, Out[g,d] = Σ_t p[t]·V[t,d].
func Attend(a *Attention) {
	for i := range a.Queries {
		for g := range a.Group {
			at := i*a.Stride + g*a.HeadDim
			a.attend(g, a.Q[at:at+a.HeadDim], a.Out[at:at+a.HeadDim], a.To+i)
		}
	}
}

// attend is one query of head g, which looks at the positions before to.
func (a *Attention) attend(g int, q, out []float32, to int) {
	from := 0
	if a.Window > 0 {
		from = max(0, to-a.Window)
	}
	scores := a.Scores[:to-from]
	for t := range scores {
		block, slot := a.block(a.K, from+t)
		sum := 0.0
		for d, x := range q {
			sum += float64(x) * float64(a.number(block, d*a.PageTokens+slot))
		}
		scores[t] = float32(float64(a.Scale) * float64(a.scale(block, slot)) * sum)
	}
	if a.SoftCap > 0 {
		SoftCap(scores, a.SoftCap)
	}
	if a.Sinks == nil {
		Softmax(scores)
	} else {
		SoftmaxSink(scores, a.Sinks[g])
	}
	for d := range out {
		sum := 0.0
		for t, p := range scores {
			block, slot := a.block(a.V, from+t)
			sum += float64(p) * float64(a.scale(block, slot)) * float64(a.number(block, slot*a.HeadDim+d))
		}
		out[d] = float32(sum)
	}
}

// block gives the block of a pool in which position t lies, and its slot there.
func (a *Attention) block(pool []byte, t int) (block []byte, slot int) {
	return pool[a.Block(int(a.Pages[t/a.PageTokens]), a.KVHead):], t % a.PageTokens
}
