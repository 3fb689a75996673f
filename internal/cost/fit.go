package cost

import (
	"math"
	"slices"
	"time"
)

// This file learns a Cost from steps as they end.
//
// Two learners, since two things change. The shape, what a token costs beside
// a row, belongs to model and machine and hardly changes: the coefficients are
// fitted by recursive least squares of the relative error (Ljung, System
// Identification, ch. 11), each on a slow random walk. The speed changes at
// once when a neighbour takes the processor: one gear multiplies the whole
// shape, up within a few steps and down slowly.
//
// Forgetting by a factor forgets what the steps do not show too, and winds up
// while all look alike. The random walk adds to the diagonal of the covariance
// alone, up to a bound, so what is not seen is neither forgotten nor inflated.

const (
	coefficients = 5
	fitDrift     = 1e-4 // of each coefficient's relative variance, in a step; a step's noise is 1
	fitPrior     = 100  // relative variance of what is not known, and its bound
	fitOutlier   = 0.2  // relative error that a step of a known kind can teach
	fitSpread    = 0.01 // of a step's duration: a coefficient that is 0 drifts as if it were this
	fitNovel     = 3    // and what a step of an unknown kind can teach besides

	weightMax = 1e18 // nanoseconds: of a broken clock, and so that nothing overflows

	gearWindow = 7    // steps that set the gear, down by their median
	gearSure   = 5    // of which so many must be slower for it to go up
	gearNoise  = 0.15 // a median within this needs no gear
	gearDown   = 0.02 // of the way down, in a step
)

// norms are the loads at which a coefficient counts one, so that the
// covariance is of one order.
var norms = [coefficients]float64{1, 64, 64 * 512, 4, 4 * 512}

// Fit learns a Cost. The zero value is ready and knows nothing.
type Fit struct {
	cost       Cost                  // shape times gear
	weights    [coefficients]float64 // nanoseconds at norms
	covariance [coefficients][coefficients]float64
	unit       float64 // nanoseconds: the first step's, squared the unit of covariance
	steps      int
	restored   bool

	gear   float64
	ratios [gearWindow]float64
	sorted [gearWindow]float64
}

// Cost is what has been learned so far. It changes with Observe.
func (f *Fit) Cost() *Cost { return &f.cost }

// Restore begins with a cost learned earlier, if it is valid.
func (f *Fit) Restore(c Cost) {
	if !c.Valid() || !c.Known() {
		return
	}
	*f = Fit{restored: true}
	for i, x := range [coefficients]float64{c.Base, c.PrefillToken, c.PrefillContext, c.DecodeRow, c.DecodeContext} {
		f.weights[i] = min(x*norms[i], weightMax)
	}
	f.shift(1)
	f.publish()
}

func regressors(l Load) [coefficients]float64 {
	x := [coefficients]float64{1, float64(l.PrefillTokens), l.PrefillContext, float64(l.DecodeRows), float64(l.DecodeContext)}
	for i := range x {
		x[i] /= norms[i]
	}
	return x
}

// Observe learns from a step that computed l. Steps of no duration teach nothing.
func (f *Fit) Observe(l Load, took time.Duration) {
	if took <= 0 {
		return
	}
	y, x := float64(took), regressors(l)
	if f.unit == 0 {
		f.begin(y, &x)
	}
	f.steps++
	shape := 0.0
	for i := range x {
		shape += f.weights[i] * x[i]
	}
	f.observeGear(y / max(shape, 1))
	f.observeShape(y, max(shape, 1), &x)
	f.publish()
}

// begin sets what is not known before the first step: its duration, spread
// evenly where no cost was restored.
func (f *Fit) begin(y float64, x *[coefficients]float64) {
	f.unit = y
	for i := range f.covariance {
		f.covariance[i][i] = fitPrior * y * y
	}
	if f.restored {
		for i := range f.covariance { // learned before: no more uncertain than by so much
			f.covariance[i][i] = min(f.covariance[i][i], f.weights[i]*f.weights[i]+y*y)
		}
		return
	}
	sum := 0.0
	for i := range x {
		sum += x[i]
	}
	for i := range f.weights {
		f.weights[i] = y / sum
	}
	f.shift(1)
}

// observeShape is a step of recursive least squares, of the relative error.
// How much one step may teach depends on how little is known of its kind, so
// that one that was stopped by the machine moves little.
func (f *Fit) observeShape(y, shape float64, x *[coefficients]float64) {
	var px, gain [coefficients]float64
	unsure := 0.0 // the prediction's own variance
	for i := range px {
		for j := range x {
			px[i] += f.covariance[i][j] * x[j]
		}
		unsure += x[i] * px[i]
	}
	novel := unsure / (shape*shape + unsure)
	y = min(max(y, (1-fitOutlier)*(1-novel)*shape), (1+fitOutlier+fitNovel*novel)*shape)
	y = max(y, 1)
	noise := y*y + unsure
	for i := range gain {
		gain[i] = px[i] / noise
		f.weights[i] += gain[i] * (y - shape)
	}
	for i := range gain {
		for j := range gain {
			f.covariance[i][j] -= gain[i] * px[j]
		}
	}
	f.clamp()
	f.drift(y)
}

// clamp moves to coefficients that are not negative, the way that changes
// known predictions least: along the covariance (a projection in its inverse's
// metric), and by force where that fails.
func (f *Fit) clamp() {
	for range coefficients {
		lowest := 0
		for i, w := range f.weights {
			if w < f.weights[lowest] {
				lowest = i
			}
		}
		w, v := f.weights[lowest], f.covariance[lowest][lowest]
		if w >= 0 || v <= 0 {
			break
		}
		for i := range f.weights {
			f.weights[i] -= w * f.covariance[i][lowest] / v
		}
	}
	for i, w := range f.weights {
		f.weights[i] = min(max(0, w), weightMax)
	}
}

// drift makes every coefficient a little less certain after a step of y.
func (f *Fit) drift(y float64) {
	bound := fitPrior * f.unit * f.unit
	for i := range f.covariance {
		v := &f.covariance[i][i]
		spread := f.weights[i] + fitSpread*y
		*v = max(*v, 0) + fitDrift*spread*spread
		if *v <= bound {
			continue
		}
		shrink := math.Sqrt(bound / *v) // rows and columns alike, so that it stays a covariance
		for j := range f.covariance {
			f.covariance[i][j] *= shrink
			f.covariance[j][i] *= shrink
		}
	}
}

// observeGear takes how much slower than the shape says a step was.
func (f *Fit) observeGear(ratio float64) {
	f.ratios[f.steps%gearWindow] = ratio
	f.sorted = f.ratios
	slices.Sort(f.sorted[:])
	switch median, most := f.sorted[gearWindow/2], f.sorted[gearWindow-gearSure]; {
	case most > f.gear*(1+gearNoise): // most steps are slower by so much: noise alone seldom is
		f.gear = most
	case median < f.gear*(1-gearNoise):
		f.gear += gearDown * (median - f.gear)
	default: // what the shape has learned meanwhile needs no gear
		f.gear += gearDown * (min(max(1, min(f.gear, median)), max(f.gear, median)) - f.gear)
	}
}

// shift sets the gear, as if all steps so far had it.
func (f *Fit) shift(gear float64) {
	f.gear = gear
	for i := range f.ratios {
		f.ratios[i] = gear
	}
}

func (f *Fit) publish() {
	var c [coefficients]float64
	for i, w := range f.weights {
		c[i] = f.gear * w / norms[i]
	}
	f.cost = Cost{c[0], c[1], c[2], c[3], c[4]}
}
