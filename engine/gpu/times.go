//go:build cuda

package gpu

import (
	"errors"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// stepTimes times the kernels of a step by events between them. Events are made when first
// needed, and used again.
type stepTimes struct {
	events []cuda.Event // events[0] is the step's beginning
	laps   []model.DeviceLap
}

func (t *stepTimes) begin(d *cuda.Device) error {
	t.laps = t.laps[:0]
	return t.mark(d)
}

// mark puts the next event into the stream.
func (t *stepTimes) mark(d *cuda.Device) error {
	next := len(t.laps)
	if next == len(t.events) {
		e, err := d.NewEvent()
		if err != nil {
			return err
		}
		t.events = append(t.events, e)
	}
	return d.Mark(t.events[next])
}

// lap says what was launched since the last mark.
func (t *stepTimes) lap(d *cuda.Device, class model.KernelClass, layer int) error {
	t.laps = append(t.laps, model.DeviceLap{Class: class, Layer: layer})
	return t.mark(d)
}

// read gives the laps with their times, after the step was waited for.
func (t *stepTimes) read() ([]model.DeviceLap, error) {
	for i := range t.laps {
		var err error
		if t.laps[i].Done, err = t.events[i+1].Since(t.events[0]); err != nil {
			return nil, err
		}
	}
	return t.laps, nil
}

func (t *stepTimes) close() (err error) {
	for i := range t.events {
		err = errors.Join(err, t.events[i].Close())
	}
	t.events = nil
	return err
}
