package ref

// Attention is one query token's work on one KV head. The fields are those of
// kernels.Attention, which says what they mean.
type Attention struct {
	Out, Q     []float32
	K, V       []float32
	Pages      []int32
	PageTokens int
	KVHeads    int
	KVHead     int
	HeadDim    int
	Group      int
	From, To   int
	Scale      float32
	SoftCap    float32
	Sinks      []float32
	Scores     []float32
}

// Attend computes, for each query head g: s[t] = Scale·Σ_d Q[g,d]·K[t,d] over the
// positions t in [From,To), bounded by SoftCap, p = softmax(s) with the sink's
// score among them, Out[g,d] = Σ_t p[t]·V[t,d].
func Attend(a *Attention) {
	for g := range a.Group {
		q := a.Q[g*a.HeadDim:][:a.HeadDim]
		scores := a.Scores[:a.To-a.From]
		for t := range scores {
			scores[t] = float32(float64(a.Scale) * Dot(q, a.row(a.K, a.From+t)))
		}
		if a.SoftCap > 0 {
			SoftCap(scores, a.SoftCap)
		}
		if a.Sinks == nil {
			Softmax(scores)
		} else {
			SoftmaxSink(scores, a.Sinks[g])
		}
		for d := range a.HeadDim {
			sum := 0.0
			for t, p := range scores {
				sum += float64(p) * float64(a.row(a.V, a.From+t)[d])
			}
			a.Out[g*a.HeadDim+d] = float32(sum)
		}
	}
}

// row is the HeadDim numbers of position t in a pool.
func (a *Attention) row(pool []float32, t int) []float32 {
	page := int(a.Pages[t/a.PageTokens])
	at := ((page*a.KVHeads+a.KVHead)*a.PageTokens + t%a.PageTokens) * a.HeadDim
	return pool[at : at+a.HeadDim]
}
