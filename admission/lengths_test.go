package admission

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestLengthBins(t *testing.T) {
	for n := 2; n < 1<<18; n += 1 + n/50 {
		b := lengthBin(n)
		if low, high := math.Exp2(float64(b)/4), math.Exp2(float64(b+1)/4); float64(n) < low*0.999 || float64(n) > high*1.001 {
			t.Fatalf("%d is in the bin from %v to %v", n, low, high)
		}
	}
}

// TestLengthsOfTenants has tenants whose answers differ from each other and by
// the size of the prompt. Predictions must tell them apart, and the control, one
// histogram for all, must not.
func TestLengthsOfTenants(t *testing.T) {
	accuracy := func(known bool) LengthView {
		rnd := rand.New(rand.NewPCG(3, 4))
		l := newLengths(10000)
		for i := range 20000 {
			tenant := rnd.IntN(20)
			w := Demand{Tenant: "same", PromptTokens: 20, DecodeTokens: 4096}
			if known {
				w.Tenant, w.PromptTokens = benchTenants[tenant], 20<<rnd.IntN(4)
			}
			// From 15 to 900 tokens by tenant, each within a factor of about 1.6.
			tokens := max(1, int(15*math.Pow(60, float64(tenant)/19)*math.Exp(rnd.NormFloat64()*0.5)))
			if i > 2000 {
				p := l.distribution(&w)
				l.score.observe(p.mean(4096)+rnd.Float64()*1e-6, p.quantile(0.9, 4096), tokens)
			}
			l.observe(&w, tokens, true)
		}
		return l.score.view()
	}
	known, control := accuracy(true), accuracy(false)
	t.Logf("by tenant %+v, control %+v", known, control)
	if known.PairAccuracy < 0.8 || known.Covered < 0.88 || known.Covered > 0.97 || known.ReserveRatio > 2.2 {
		t.Errorf("predictions: %+v", known)
	}
	if control.PairAccuracy > 0.6 || control.ReserveRatio < 2.2 {
		t.Errorf("the control is as good: %+v", control)
	}
}

// TestLengthsOfForms: answers with a schema are short here and free ones long, of one
// tenant and prompt. Neither blurs the other.
func TestLengthsOfForms(t *testing.T) {
	l := newLengths(100)
	free, form := &Demand{Tenant: "a", Route: "chat_completions"}, &Demand{Tenant: "a", Route: "chat_completions", Form: "json_schema"}
	for range 300 {
		l.observe(free, 900, true)
		l.observe(form, 30, true)
	}
	p, q := l.distribution(free), l.distribution(form)
	if long, short := p.mean(4096), q.mean(4096); long < 600 || short > 60 {
		t.Errorf("free answers of 900 tokens are predicted at %v, those with a schema of 30 at %v", long, short)
	}
}

// TestCutAnswersWereLonger: answers that were cut teach that there are longer
// ones, not that there are shorter ones.
func TestCutAnswersWereLonger(t *testing.T) {
	l := newLengths(100)
	w := &Demand{Tenant: "a"}
	for range 300 {
		l.observe(w, 400, true)
	}
	before := l.distribution(w)
	for range 100 {
		l.observe(w, 10, false)
	}
	after := l.distribution(w)
	if b, a := before.mean(4096), after.mean(4096); a < 0.95*b {
		t.Errorf("the mean fell from %v to %v", b, a)
	}
	for range 100 {
		l.observe(w, 10, true) // the control
	}
	if whole := l.distribution(w); whole.mean(4096) > 0.9*after.mean(4096) {
		t.Error("whole short answers teach nothing")
	}
}

func TestDistributionsAreWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	l := newLengths(64)
	for range 3000 {
		w := &Demand{Tenant: benchTenants[rnd.IntN(50)], PromptTokens: rnd.IntN(5000), Blocks: []uint64{rnd.Uint64N(9)}}
		l.observe(w, 1+rnd.IntN(1<<18), rnd.IntN(2) == 0)
		p := l.distribution(w)
		seen := rnd.IntN(1 << 19)
		p.condition(seen)
		sum := 0.0
		for _, x := range p {
			if x < 0 || x != x {
				t.Fatalf("a bin holds %v", x)
			}
			sum += float64(x)
		}
		if math.Abs(sum-1) > 1e-3 {
			t.Fatalf("after %d tokens it adds up to %v", seen, sum)
		}
		if q, most := p.quantile(0.9, 777), 777; q < 1 || q > most || p.mean(most) > float64(most) {
			t.Fatalf("q90 %d, mean %v", q, p.mean(most))
		}
	}
	if len(l.nodes) > 64 || len(l.index) != len(l.nodes) {
		t.Errorf("%d nodes, %d keys", len(l.nodes), len(l.index))
	}
}
