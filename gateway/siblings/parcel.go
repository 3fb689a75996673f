package siblings

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/forebay-io/forebay/internal/wire"
)

// Paths of a hop.
const (
	HopPath    = "/siblings/hop"
	CancelPath = "/siblings/cancel"
)

// Format is what both ends must agree on.
var Format = "1." + strconv.Itoa(wire.Format)

// Parcel is a request on its hop: what its own gateway knows of it.
type Parcel struct {
	From        string `json:"from"` // the replica that has the client
	ID          string `json:"id"`   // the request's, at From
	Fingerprint string `json:"fingerprint"`
	Tenant      string `json:"tenant"`
	Key         string `json:"key,omitempty"`
	Class       string `json:"class"`
	Route       string `json:"route"`
	User        string `json:"user,omitempty"`
	Retry       bool   `json:"retry,omitempty"`
	AgeNS       int64  `json:"age_ns"`            // since the client sent it
	LeftMS      int64  `json:"left_ms,omitempty"` // until its client's deadline; 0 is none
	PublicID    string `json:"public_id,omitempty"`

	Generation *wire.Generation `json:"-"`
}

// Append appends p: the length of its head, the head in JSON, the generation.
func (p *Parcel) Append(b []byte) []byte {
	head, err := json.Marshal(p)
	if err != nil {
		panic("siblings: a parcel does not marshal: " + err.Error())
	}
	b = append(binary.AppendUvarint(b, uint64(len(head))), head...)
	return wire.AppendGeneration(b, p.Generation)
}

// ReadParcel reads what Append wrote.
func ReadParcel(b []byte) (*Parcel, error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, errors.New("the hop's head is cut")
	}
	p := &Parcel{}
	if err := json.Unmarshal(b[n:n+int(size)], p); err != nil {
		return nil, fmt.Errorf("the hop's head: %w", err)
	}
	g, err := wire.ReadGeneration(b[n+int(size):])
	if err != nil {
		return nil, err
	}
	if g.Prompt == nil || len(g.Prompt.Tokens) == 0 {
		return nil, errors.New("the hop has no prompt")
	}
	p.Generation = g
	return p, nil
}
