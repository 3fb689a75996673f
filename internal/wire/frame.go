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

// A frame is the length of what follows (four bytes, little-endian), a type
// (one byte) and a payload.
const (
	frameHello         = 1 + iota // both ways, first: JSON hello
	frameRefuse                   // from the engine, last: why the connection ends
	frameModel                    // from the engine: JSON Model, when it changes
	frameStep                     // from the engine: state and events of a step
	framePromptReply              // from the engine: prompt or error
	frameTraceReply               // from the engine: launches or error
	frameHoldingsReply            // from the engine: holdings or error
	frameDispatch                 // from the gateway, as are all below
	frameAck                      // sequence, events taken
	frameCancel                   // sequence
	framePause                    // sequence
	frameResume                   // sequence
	framePrepare                  // prepare id, request
	frameAbandon                  // prepare or trace id
	frameTrace                    // trace id, steps, limit
	frameHoldings                 // id, most rows
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

const (
	frameKeep = 1 << 20  // bytes: a larger buffer is not kept for the next frame
	frameGrow = 64 << 10 // bytes: a buffer grows at least by these
)

func newFrameReader(src io.Reader, max int) *frameReader {
	return &frameReader{src: bufio.NewReaderSize(src, frameGrow), max: max}
}

// next reads a frame, whose payload is valid until the next call. The error is
// io.EOF where the connection ended between two frames, of kind Protocol for a
// broken frame, and the connection's own otherwise.
func (f *frameReader) next() (kind byte, payload []byte, err error) {
	if _, err := io.ReadFull(f.src, f.head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = Errorf(Protocol, "the connection ended inside a frame's head")
		}
		return 0, nil, err
	}
	size := int64(binary.LittleEndian.Uint32(f.head[:])) - 1
	if size < 0 || size > int64(f.max) {
		return 0, nil, Errorf(Protocol, "a frame of %d bytes, outside the limits of 1 to %d: frame_bytes_max must be the same on both sides, and the peer must be an engine or gateway of this version", size+1, f.max+1)
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

// patient reads from a connection, and fails when nothing has come for limit.
// After the limit it reads once more: where this process itself was stopped for
// longer than limit, the deadline has passed although bytes have come.
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

// lost makes an Error of the reason why a connection ended. A protocol fault and
// what the other side said stay as they are; everything else is Unavailable.
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
