package model

import "github.com/forebay-io/forebay/engine/sample"

// DeviceDraw is a token that a device finds in a row of logits that stays there. The caller
// fills in the first part, the device the second.
type DeviceDraw struct {
	sample.Draw
	Row  int      // of the last Forward's rows of logits, with those that stay and those that do not
	Mask []uint64 // a bit for each token that may come; nil for all
	Tops int      // how many of the likeliest tokens are listed; −1 without log-probabilities

	Found DeviceFound
	Rest  sample.Rest // valid until the next call
}

// DeviceFound is how a draw ended.
type DeviceFound int

const (
	Found        DeviceFound = iota
	FoundNaN                 // a number is not finite
	FoundNone                // every token is masked
	FoundTooMuch             // more than the device has room for: the host has to sample the row
)

// DrawsMax is how many draws a Sample takes; 0 where the host has to sample.
func (m *Model) DrawsMax(vocab int) int {
	if m.placed == nil {
		return 0
	}
	return m.placed.DrawsMax(vocab)
}

// Sample finds tokens in the logits of chunks with Stay.
func (m *Model) Sample(draws []DeviceDraw, vocab int) {
	if err := m.placed.Sample(draws, vocab); err != nil {
		panic(&DeviceFault{err})
	}
}

// Row copies a row of logits that stays on the device. It is valid until the next Row.
func (m *Model) Row(row int) []float32 {
	logits, err := m.placed.Row(row)
	if err != nil {
		panic(&DeviceFault{err})
	}
	return logits
}
