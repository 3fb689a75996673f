package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// A frame is a length (four bytes, little-endian, of what follows), a type
// (one byte) and a payload.
const (
	frameHello        = 1 + iota // both ways, first: JSON hello
	frameRefuse                  // from the engine, last: why the connection ends
	frameModel                   // from the engine: JSON Model, when it changes
	frameStep                    // from the engine: state and events of a step
	framePromptReply             // from the engine: prompt or error
	frameCaptureReply            // from the engine: launches or error
	frameDispatch                // from the gateway, as all below
	frameAck                     // sequence, events taken
	frameCancel                  // sequence
	framePause                   // sequence
	frameResume                  // sequence
	framePrepare                 // prepare id, request
	frameAbandon                 // prepare or capture id
	frameCapture                 // capture id, steps, limit
)

const frameHead = 5

// beginFrame appends the head of a frame; endFrame fills in the length of
// the frame that began at start.
func beginFrame(b []byte, kind byte) []byte { return append(b, 0, 0, 0, 0, kind) }

func endFrame(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// appendIDFrame appends a frame whose payload is a sequence or prepare id.
func appendIDFrame(b []byte, kind byte, id uint64) []byte {
	start := len(b)
	return endFrame(binary.AppendUvarint(beginFrame(b, kind), id), start)
}

func appendAckFrame(b []byte, id uint64, taken int) []byte {
	start := len(b)
	b = binary.AppendUvarint(beginFrame(b, frameAck), id)
	return endFrame(binary.AppendUvarint(b, uint64(taken)), start)
}

func appendRefuseFrame(b []byte, err *Error) []byte {
	start := len(b)
	return endFrame(appendError(beginFrame(b, frameRefuse), err), start)
}

// frameReader reads frames into one buffer, which grows with the bytes that
// arrive and never with the length that a frame claims.
type frameReader struct {
	src  *bufio.Reader
	head [frameHead]byte
	buf  []byte
	max  int // bytes of one frame
}

// Above frameKeep a frame's buffer is given back after the frame.
const (
	frameKeep = 1 << 20
	frameGrow = 64 << 10
)

func newFrameReader(src io.Reader, max int) *frameReader {
	return &frameReader{src: bufio.NewReaderSize(src, frameGrow), max: max}
}

// next is the next frame; its payload is valid until the call after. The
// error is io.EOF between frames, of kind Protocol for a broken frame, and
// the connection's own otherwise.
func (f *frameReader) next() (kind byte, payload []byte, err error) {
	if _, err := io.ReadFull(f.src, f.head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = Errorf(Protocol, "the connection ended inside a frame's head")
		}
		return 0, nil, err
	}
	size := int64(binary.LittleEndian.Uint32(f.head[:])) - 1
	if size < 0 || size > int64(f.max) {
		return 0, nil, Errorf(Protocol, "a frame of %d bytes, outside the limit of [1,%d]: frame_bytes_max must be the same on both sides, and the peer an engine or gateway of this version", size+1, f.max+1)
	}
	if cap(f.buf) > frameKeep {
		f.buf = nil
	}
	f.buf = f.buf[:0]
	for len(f.buf) < int(size) {
		got := len(f.buf)
		grow := min(int(size)-got, max(got, frameGrow))
		if cap(f.buf) < got+grow {
			f.buf = append(make([]byte, 0, got+grow), f.buf...)
		}
		f.buf = f.buf[:got+grow]
		if _, err := io.ReadFull(f.src, f.buf[got:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = Errorf(Protocol, "the connection ended inside a frame of %d bytes", size+1)
			}
			return 0, nil, err
		}
	}
	return f.head[4], f.buf, nil
}

// patient reads from a connection until nothing has come for limit. It looks
// a second time: a process that was itself stopped for longer than limit
// finds its deadline passed, and then what came meanwhile.
type patient struct {
	conn  net.Conn
	limit time.Duration
}

func (p patient) Read(b []byte) (int, error) {
	for _, wait := range [...]time.Duration{p.limit, p.limit / 8} {
		if err := p.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return 0, err
		}
		if n, err := p.conn.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return 0, Errorf(Unavailable, "no sign of life for %v", p.limit)
}

// lost is why a connection ended, as an Error: a Protocol fault as it is,
// what the other side said as it is, everything else as Unavailable.
func lost(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, io.EOF):
		return Errorf(Unavailable, "the peer closed the connection")
	case errors.Is(err, net.ErrClosed):
		return Errorf(Unavailable, "the connection was closed")
	}
	return Errorf(Unavailable, "%v", err)
}
