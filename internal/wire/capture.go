package wire

import (
	"context"
	"encoding/binary"
	"time"
)

// captureReply answers a capture: launches or an error.
type captureReply struct {
	Capture uint64 // the request's id
	Result  Capture
	Err     *Error
}

// launchBytesLeast is the size of the shortest launch.
const launchBytesLeast = 5

// appendCaptureReply writes each launch by its distance from the one before.
func appendCaptureReply(b []byte, r *captureReply) []byte {
	start := len(b)
	b = appendError(binary.AppendUvarint(beginFrame(b, frameCaptureReply), r.Capture), r.Err)
	if r.Err != nil {
		return endFrame(b, start)
	}
	b = appendSize(appendSize(b, r.Result.Steps), r.Result.Missing)
	b = appendSize(b, len(r.Result.Launches))
	var last Launch
	for i := range r.Result.Launches {
		l := &r.Result.Launches[i]
		b = binary.AppendVarint(b, int64(l.Step-last.Step))
		b = append(appendInt(b, l.Layer), byte(l.Class))
		b = binary.AppendVarint(b, l.Begin-last.End)
		b = appendDuration(b, duration(l.End-l.Begin))
		last = *l
	}
	return endFrame(b, start)
}

func (d *decoder) captureReply() (r captureReply) {
	r.Capture, r.Err = d.uint(), d.error()
	if r.Err != nil {
		return r
	}
	r.Result.Steps, r.Result.Missing = d.size(), d.size()
	n := d.count(launchBytesLeast)
	if n > CaptureLaunchesMax {
		d.fail("a capture of %d launches, over the limit of %d", n, CaptureLaunchesMax)
		return r
	}
	r.Result.Launches = make([]Launch, n)
	var last Launch
	for i := range r.Result.Launches {
		l := Launch{Step: last.Step + uint64(d.int64()), Layer: d.int(), Class: KernelClass(d.byte())}
		l.Begin = last.End + d.int64()
		l.End = l.Begin + int64(d.duration())
		if l.Class >= KernelClassCount || l.End < l.Begin {
			d.fail("a launch of class %d from %d to %d", l.Class, l.Begin, l.End)
		}
		r.Result.Launches[i], last = l, l
	}
	return r
}

// CheckCapture refuses a capture that asks for too much or nothing.
func CheckCapture(steps int, limit time.Duration) *Error {
	switch {
	case steps < 1 || steps > CaptureStepsMax:
		return InvalidParam("steps", "a capture of %d steps; it must be from 1 to %d", steps, CaptureStepsMax)
	case limit <= 0:
		return InvalidParam("limit", "a capture of at most %v; the limit must be more than 0", limit)
	}
	return nil
}

// capture starts to capture.
func (c *connection) capture(id uint64, steps int, limit time.Duration) *Error {
	refused := func(err *Error) []byte { return appendCaptureReply(nil, &captureReply{Capture: id, Err: err}) }
	return c.start(id, refused, func(ctx context.Context) []byte {
		engine, ok := c.engine.(Capturer)
		if !ok {
			return refused(Errorf(Invalid, "this engine cannot capture launches"))
		}
		result, err := engine.Capture(ctx, steps, limit)
		if err != nil {
			return refused(AsError(err))
		}
		frame := appendCaptureReply(nil, &captureReply{Capture: id, Result: *result})
		if size := len(frame) - frameHead; size > c.cfg.FrameBytesMax {
			return refused(Errorf(TooLarge, "the capture takes %d bytes to hand back, over the limit of %d: capture fewer steps or raise frame_bytes_max", size, c.cfg.FrameBytesMax))
		}
		return frame
	})
}
