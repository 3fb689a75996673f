package wire

import "encoding/binary"

// This file writes single generations and events, for those who carry them by
// another way than this package's connections. The form is that of the frames, so
// both ends must be of one version of it: Format.

// Format names the form of what AppendGeneration and AppendEvent write.
const Format = protocolVersion

// AppendGeneration appends g without its Notify.
func AppendGeneration(b []byte, g *Generation) []byte {
	return appendDispatch(binary.AppendUvarint(b, 0), 0, g)
}

// ReadGeneration reads what AppendGeneration wrote, and nothing else.
func ReadGeneration(b []byte) (*Generation, *Error) {
	d := &decoder{rest: b}
	m := d.dispatch()
	if err := d.finish(); err != nil {
		return nil, err
	}
	return &m.Generation, nil
}

// AppendEvent appends e.
func AppendEvent(b []byte, e *Event) []byte { return appendEvent(b, 0, e) }

// ReadEvent reads what AppendEvent wrote, and nothing else.
func ReadEvent(b []byte) (Event, *Error) {
	d := &decoder{rest: b}
	d.uint()
	var s stepFrame
	q := s.event(d)
	if err := d.finish(); err != nil {
		return Event{}, err
	}
	q.Event.Text = string(s.texts)
	return q.Event, nil
}
