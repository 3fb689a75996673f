package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forebay-io/forebay/admission"
)

// policy decides which request starts when. The run calls it in order of time.
type policy interface {
	// arrive takes a request, or refuses it by setting its ending.
	arrive(j *job, now time.Duration)
	// next gives the next request to release now, nil for none.
	next(now time.Duration) *job
	// takeRefused are the requests that waited and were refused since the last call.
	takeRefused() []*job
	// wakeAt is when next may give something even if nothing else happens.
	wakeAt() (time.Duration, bool)
	// progress says that a released request has got a token.
	progress(j *job, now time.Duration)
	// done says that a request finished, or was cancelled in any state.
	done(j *job, now time.Duration)
	// inside tells that the policy is a part of the engine, which asks it before each
	// step. An engine does not wait for a gateway: what that releases on a report
	// begins a step later.
	inside() bool
	// report passes on what the machine says at the end of a step.
	report(r admission.Report, now time.Duration)
}

// maker makes a policy for a machine; only ours uses the classes.
type maker func(m *machine, classes admission.Config) (policy, error)

// Policies are the names of the policies that can be compared, ours first.
func Policies() []string {
	return []string{"forebay", "fcfs", "fcfs-drop", "lifo-drop", "edf", "sjf-oracle", "priority", "vtc", "drr-wspt", "newcomer"}
}

// Ablations are the names of ours with a part left out.
func Ablations() []string {
	var names []string
	for name := range ourMakers {
		if name != "forebay" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func makerOf(name string) (maker, error) {
	if ours, known := ourMakers[name]; known {
		return ours, nil
	}
	if rule, known := rules[name]; known {
		return func(m *machine, _ admission.Config) (policy, error) { return newBaseline(m, rule), nil }, nil
	}
	return nil, fmt.Errorf("there is no policy %q; there are %s", name, strings.Join(append(Policies(), Ablations()...), ", "))
}
