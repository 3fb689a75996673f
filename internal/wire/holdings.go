package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"
)

// Pin asks that the blocks of a prompt stay in memory after the request.
type Pin struct {
	// For is how long, 0 ends the pin of the prompt. TokensMax is how much all pins of the
	// salt may hold.
	Asked     bool
	For       time.Duration
	TokensMax int
}

// PinRefusal says why a prompt that should be pinned is not.
type PinRefusal uint8

const (
	PinDone   PinRefusal = iota
	PinShort             // it is too short to be found again
	PinTenant            // the pins of its salt hold as much as they may
	PinMemory            // all pins together hold as much as they may
	PinCount             // there are as many pins as there may be
	pinRefusals
)

var pinRefusalNames = [pinRefusals]string{"", "too_short", "tenant_full", "memory_full", "too_many"}

// String returns the refusal's stable name, "" for none.
func (r PinRefusal) String() string {
	if r < pinRefusals {
		return pinRefusalNames[r]
	}
	return "unknown"
}

// Holdings say what the pages of an engine hold, for people.
type Holdings struct {
	// Prefixes are the beginnings of prompts that saved the most tokens.
	Prefixes []HeldPrefix `json:"prefixes"`
	// Salts are the pages of each salt, those first that hold the most.
	Salts []SaltPages `json:"salts"`
	// Pins, those first that end first.
	Pins []HeldPin `json:"pins"`
}

// HeldPrefix is a beginning of prompts that is in memory.
type HeldPrefix struct {
	Salt   string `json:"salt"`
	Hash   uint64 `json:"hash"` // of its last block
	Tokens int    `json:"tokens"`
	Uses   int    `json:"uses"` // prompts that went on from it
	Pinned bool   `json:"pinned,omitempty"`
}

// SaltPages counts the pages of a salt. Those that pins hold are used.
type SaltPages struct {
	Salt   string `json:"salt"`
	Used   int    `json:"used"`
	Cached int    `json:"cached"`
	Pinned int    `json:"pinned"`
}

// HeldPin is a pin.
type HeldPin struct {
	Salt   string        `json:"salt"`
	Hash   uint64        `json:"hash"` // of its last block
	Tokens int           `json:"tokens"`
	Left   time.Duration `json:"left"` // until it ends
}

// HoldingsMax bounds each list of Holdings.
const HoldingsMax = 1000

// HoldingsTeller is an Engine that knows what its pages hold.
type HoldingsTeller interface {
	// Holdings looks at all pages between two steps. Its lists have at most so many rows.
	Holdings(ctx context.Context, most int) (*Holdings, error)
}

// holdingsReply answers a question for holdings.
type holdingsReply struct {
	Asked  uint64 // the request's id
	Result Holdings
	Err    *Error
}

func appendHoldingsReply(b []byte, r *holdingsReply) []byte {
	start := len(b)
	b = appendError(binary.AppendUvarint(beginFrame(b, frameHoldingsReply), r.Asked), r.Err)
	if r.Err == nil {
		text, err := json.Marshal(&r.Result)
		if err != nil {
			panic("wire: holdings do not marshal: " + err.Error())
		}
		b = appendText(b, text)
	}
	return endFrame(b, start)
}

func (d *decoder) holdingsReply() (r holdingsReply) {
	r.Asked, r.Err = d.uint(), d.error()
	if r.Err != nil {
		return r
	}
	if text := d.bytes(); d.err == nil {
		if err := json.Unmarshal(text, &r.Result); err != nil {
			d.fail("the holdings are not readable: %v", err)
		}
	}
	return r
}

// Holdings implements HoldingsTeller.
func (c *Client) Holdings(ctx context.Context, most int) (*Holdings, error) {
	s, down := c.current()
	if down != nil {
		return nil, down
	}
	got, err := ask(ctx, s, s.holdings, frameHoldings, appendSize(nil, most))
	switch {
	case err != nil:
		return nil, err
	case got == nil:
		return nil, Errorf(Canceled, "the question for holdings was abandoned")
	case got.Err != nil:
		return nil, got.Err
	}
	return &got.Result, nil
}

// tellHoldings answers a question for holdings.
func (c *connection) tellHoldings(id uint64, most int) *Error {
	refused := func(err *Error) []byte { return appendHoldingsReply(nil, &holdingsReply{Asked: id, Err: err}) }
	return c.start(id, refused, func(ctx context.Context) []byte {
		engine, ok := c.engine.(HoldingsTeller)
		if !ok {
			return refused(Errorf(Invalid, "this engine has no pages"))
		}
		result, err := engine.Holdings(ctx, min(most, HoldingsMax))
		if err != nil {
			return refused(AsError(err))
		}
		frame := appendHoldingsReply(nil, &holdingsReply{Asked: id, Result: *result})
		if size := len(frame) - frameHead; size > c.cfg.FrameBytesMax {
			return refused(Errorf(TooLarge, "the holdings take %d bytes to hand back, over the limit of %d: ask for fewer rows or raise frame_bytes_max", size, c.cfg.FrameBytesMax))
		}
		return frame
	})
}
