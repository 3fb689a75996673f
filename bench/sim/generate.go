package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// The classes that a trace may name.
const (
	interactive = "interactive"
	batch       = "batch"
	offline     = "offline"
)

// lengths are a service's prompts and answers: log-normal, by mean and squared
// coefficient of variation, cut at a longest.
type lengths struct {
	prompt, promptSCV, promptMax float64
	output, outputSCV, outputMax float64
}

// The shapes of the published traces: chat and code of Azure 2023, long
// prompts of Mooncake.
var (
	chat = lengths{1155, 0.92, 14050, 211, 0.60, 1000}
	code = lengths{2048, 0.93, 7437, 28, 4.6, 1899}
	long = lengths{12035, 1.72, 126195, 343, 0.53, 2000}
)

func logNormal(rnd *rand.Rand, mean, scv, most float64) int {
	variance := math.Log1p(scv)
	x := mean * math.Exp(rnd.NormFloat64()*math.Sqrt(variance)-variance/2)
	return int(math.Round(max(1, min(x, most))))
}

func (l *lengths) draw(rnd *rand.Rand) Request {
	r := Request{
		Prompt: logNormal(rnd, l.prompt, l.promptSCV, l.promptMax), Output: logNormal(rnd, l.output, l.outputSCV, l.outputMax),
		Tenant: "default", Class: interactive,
	}
	r.Asked = max(askedUnset, r.Output)
	return r
}

// gaps draw times between arrivals, of mean 1.
type gaps func(rnd *rand.Rand) float64

func even(*rand.Rand) float64        { return 1 }
func poisson(rnd *rand.Rand) float64 { return rnd.ExpFloat64() }

// gammaCV4 are gaps of a gamma distribution whose coefficient of variation is
// 4: shape 1/16. By X·U^(1/a), where X has shape a+1 (Marsaglia and Tsang 2000).
func gammaCV4(rnd *rand.Rand) float64 {
	const shape = 1. / 16
	d := shape + 1 - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rnd.NormFloat64()
		v := math.Pow(1+c*x, 3)
		if v > 0 && math.Log(1-rnd.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v * math.Pow(1-rnd.Float64(), 1/shape) / shape
		}
	}
}

// burstsX10 are gaps of a Markov-modulated Poisson process: ten times the rate
// for 150 mean gaps' time, then 1500 of calm, each exponential. At the rate of
// Azure's chats that is half a minute in five.
func burstsX10() gaps {
	const calm, burst = 1500., 150.
	slow := (calm + burst) / (calm + 10*burst) // so that the mean gap is 1
	fast, left := true, 0.
	return func(rnd *rand.Rand) float64 {
		for gap := 0.; ; {
			rate, next := slow, burst
			if fast {
				rate, next = 10*slow, calm
			}
			need := rnd.ExpFloat64() / rate
			if need <= left {
				left -= need
				return gap + need
			}
			gap += left
			fast, left = !fast, rnd.ExpFloat64()*next
		}
	}
}

// arrive makes n requests, one a second in the mean; what draws them.
func arrive(rnd *rand.Rand, n int, gap gaps, draw func(i int) Request) *Trace {
	t := &Trace{Requests: make([]Request, n)}
	at := 0.
	for i := range t.Requests {
		t.Requests[i] = draw(i)
		t.Requests[i].At = time.Duration(at * float64(time.Second))
		at += gap(rnd)
	}
	return t
}

// generators make traces by name, of n requests.
var generators = map[string]func(rnd *rand.Rand, n int) *Trace{
	"poisson":   func(rnd *rand.Rand, n int) *Trace { return chats(rnd, n, poisson) },
	"gamma":     func(rnd *rand.Rand, n int) *Trace { return chats(rnd, n, gammaCV4) },
	"mmpp":      func(rnd *rand.Rand, n int) *Trace { return chats(rnd, n, burstsX10()) },
	"sustained": func(rnd *rand.Rand, n int) *Trace { return chats(rnd, n, even) },
	"pareto":    pareto,
	"mixed":     mixed,
	"uniform":   uniform,
}

func init() {
	for name, attack := range adversaries {
		generators["adversarial:"+name] = func(rnd *rand.Rand, n int) *Trace {
			t := chats(rnd, n, poisson)
			attack(rnd, t)
			return t
		}
	}
	generators["adversarial"] = func(rnd *rand.Rand, n int) *Trace {
		t := chats(rnd, n, poisson)
		for _, name := range adversaryNames {
			adversaries[name](rnd, t)
		}
		return t
	}
}

// Generators are the names of the traces that Generate makes.
func Generators() []string {
	var names []string
	for name := range generators {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Generate makes a trace of n requests by name; the same seed makes the same one.
func Generate(name string, n int, seed uint64) (*Trace, error) {
	generator, ok := generators[name]
	if !ok {
		return nil, fmt.Errorf("there is no generator %q; there are %s", name, strings.Join(Generators(), ", "))
	}
	t := generator(rand.New(rand.NewPCG(seed, 1)), n)
	t.Name = name
	return t, nil
}

// politeTenants share the chats of a generated trace, the largest asking for as
// much as Zipf's law says.
const politeTenants = 8

func chats(rnd *rand.Rand, n int, gap gaps) *Trace {
	sum := 0.
	for i := range politeTenants {
		sum += 1 / float64(i+1)
	}
	return arrive(rnd, n, gap, func(int) Request {
		r := chat.draw(rnd)
		at, who := rnd.Float64()*sum, 0
		for at -= 1; at > 0 && who < politeTenants-1; at -= 1 / float64(who+1) {
			who++
		}
		r.Tenant = fmt.Sprintf("tenant-%d", who+1)
		return r
	})
}

// uniform are short requests that are all alike.
func uniform(rnd *rand.Rand, n int) *Trace {
	return arrive(rnd, n, poisson, func(int) Request {
		return Request{Prompt: 60, Output: 30, Asked: 30, Tenant: "default", Class: interactive}
	})
}

// pareto draws prompts of a bounded Pareto law, 1.1 on 64 to 131072 tokens.
func pareto(rnd *rand.Rand, n int) *Trace {
	const alpha, least, most = 1.1, 64., 131072.
	tail := 1 - math.Pow(least/most, alpha)
	return arrive(rnd, n, poisson, func(int) Request {
		r := chat.draw(rnd)
		r.Prompt = int(least * math.Pow(1-rnd.Float64()*tail, -1/alpha))
		return r
	})
}

// mixed are tenants that ask for different things: 45 % of the work is chat,
// half of it from one abusive tenant and the rest from nine polite ones; 20 %
// is code of five tenants; 35 % are long prompts of the batch class.
func mixed(rnd *rand.Rand, n int) *Trace {
	kinds := []struct {
		lengths
		share   float64 // of the work
		tenants int
		name    string
		class   string
	}{
		{chat, 0.225, 1, "abuser", interactive},
		{chat, 0.225, 9, "polite", interactive},
		{code, 0.20, 5, "code", interactive},
		{long, 0.35, 1, "batch", batch},
	}
	engine := DefaultEngine()
	rates, sum := make([]float64, len(kinds)), 0.
	for i, k := range kinds {
		rates[i] = k.share / engine.work(k.prompt, k.promptSCV, k.output)
		sum += rates[i]
	}
	return arrive(rnd, n, poisson, func(int) Request {
		at, i := rnd.Float64()*sum, 0
		for ; i < len(kinds)-1 && at >= rates[i]; i++ {
			at -= rates[i]
		}
		k := &kinds[i]
		r := k.draw(rnd)
		if r.Tenant, r.Class = k.name, k.class; k.tenants > 1 {
			r.Tenant = fmt.Sprintf("%s-%d", k.name, 1+rnd.IntN(k.tenants))
		}
		return r
	})
}
