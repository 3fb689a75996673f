package cost

import (
	"math"
	"slices"
	"time"
)

// This file learns a Cost from finished steps.
//
// There are two learners, because two things change. The shape (the cost of a token
// relative to a row) depends on the model and the machine and hardly changes. Its
// coefficients are fitted by recursive least squares of the relative error (Ljung,
// System Identification, ch. 11), each with a slow random walk. The speed changes at
// once when another program takes the processor. So one gear multiplies the whole
// shape; it goes up within a few steps and down slowly.
//
// An exponential forgetting factor would also forget coefficients that recent steps
// do not show, and its covariance grows without bound while all steps are alike. The
// random walk adds only to the diagonal of the covariance, up to a bound.

const (
	coefficients = 5
	fitDrift     = 1e-4 // of each coefficient's relative variance, in a step; a step's noise is 1
	fitPrior     = 100  // relative variance of an unknown coefficient, and the bound of all
	fitOutlier   = 0.2  // largest relative error that a step of a known kind teaches
	fitSpread    = 0.01 // share of a step's duration: a coefficient of 0 drifts as if it had this size
	fitNovel     = 3    // how much more a step of an unknown kind teaches

	weightMax = 1e18 // nanoseconds: bounds the effect of a broken clock, and prevents overflow

	gearWindow = 7    // steps that decide about the gear
	gearSure   = 5    // slower steps in the window that raise the gear
	gearNoise  = 0.15 // relative deviation of the median that is noise
	gearDown   = 0.02 // share of the way down in each step
)

// norms scales the regressors, so that all entries of the covariance have the same
// order of magnitude.
var norms = [coefficients]float64{1, 64, 64 * 512, 4, 4 * 512}

// Fit learns a Cost. The zero value is ready to use; its Cost is unknown.
type Fit struct {
	cost       Cost                  // shape times gear
	weights    [coefficients]float64 // nanoseconds at norms
	covariance [coefficients][coefficients]float64
	unit       float64 // nanoseconds of the first step; its square is the unit of covariance
	steps      int
	restored   bool

	gear   float64
	ratios [gearWindow]float64
	sorted [gearWindow]float64
}

// Cost returns the cost learned so far. Observe changes it.
func (f *Fit) Cost() *Cost { return &f.cost }

// Restore starts from a cost that was learned earlier, if it is valid.
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

// Observe learns from a step with load l. It ignores steps without a duration.
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

// begin sets the unit and, if no cost was restored, spreads the duration of the
// first step evenly over the coefficients.
func (f *Fit) begin(y float64, x *[coefficients]float64) {
	f.unit = y
	for i := range f.covariance {
		f.covariance[i][i] = fitPrior * y * y
	}
	if f.restored {
		for i := range f.covariance { // a restored cost is less uncertain
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

// observeShape is one update of recursive least squares of the relative error. The
// less is known about a kind of step, the more one step may teach. So a step that
// the machine interrupted changes little.
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

// clamp makes negative coefficients 0 with the least change of known predictions:
// it projects along the covariance (in the metric of its inverse). If that fails it
// sets them to 0.
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
		shrink := math.Sqrt(bound / *v) // scales row and column alike, so that it stays a covariance
		for j := range f.covariance {
			f.covariance[i][j] *= shrink
			f.covariance[j][i] *= shrink
		}
	}
}

// observeGear updates the gear with the ratio of a step's duration to the shape's
// prediction.
func (f *Fit) observeGear(ratio float64) {
	f.ratios[f.steps%gearWindow] = ratio
	f.sorted = f.ratios
	slices.Sort(f.sorted[:])
	switch median, most := f.sorted[gearWindow/2], f.sorted[gearWindow-gearSure]; {
	case most > f.gear*(1+gearNoise): // most steps are slower by more than noise
		f.gear = most
	case median < f.gear*(1-gearNoise):
		f.gear += gearDown * (median - f.gear)
	default: // the shape has learned the change meanwhile
		f.gear += gearDown * (min(max(1, min(f.gear, median)), max(f.gear, median)) - f.gear)
	}
}

// shift sets the gear as if all earlier steps had it.
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
