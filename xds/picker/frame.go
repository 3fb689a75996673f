package picker

import (
	"encoding/binary"
	"io"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec for all other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// This file reads and writes parts of bodies without a copy. Nearly all bytes that a
// picker is sent are bodies. To decode them as messages copies each byte twice more after
// it was read from the socket, and leaves the copies to the garbage collector.

// frame is a message of the proxy. A part of a body stays where gRPC has read it to.
type frame struct {
	message *extprocv3.ProcessingRequest // nil for a part of a body

	part    mem.BufferSlice // whoever receives the frame frees it
	request bool            // the body is that of the request, and not that of the answer
	end     bool            // the part is the last
}

// echo is an answer that passes a part of a body on as it came.
type echo struct {
	part         mem.BufferSlice
	request, end bool
}

// Fields of ext_proc's messages.
const (
	fieldRequestBody  = 4 // of ProcessingRequest
	fieldResponseBody = 5
	fieldBody         = 1 // of HttpBody, and of StreamedBodyResponse
	fieldEnd          = 2
	fieldCommon       = 1 // of BodyResponse
	fieldMutation     = 3 // of CommonResponse
	fieldStreamed     = 3 // of BodyMutation
	fieldRequestEcho  = 3 // of ProcessingResponse
	fieldResponseEcho = 4
)

// codec reads frames and writes echoes. Other messages are those of the codec within.
type codec struct{ encoding.CodecV2 }

// Codec makes a gRPC server that a Service is registered with read the messages of
// proxies as the Service takes them. Other services notice nothing.
func Codec() grpc.ServerOption { return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}) }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if *f, ok = openPart(data); ok {
		return nil
	}
	m := new(extprocv3.ProcessingRequest)
	if err := c.CodecV2.Unmarshal(data, m); err != nil {
		return err
	}
	switch r := m.GetRequest().(type) { // an encoding that openPart does not expect
	case *extprocv3.ProcessingRequest_RequestBody:
		*f = frame{part: mem.BufferSlice{mem.SliceBuffer(r.RequestBody.GetBody())}, request: true, end: r.RequestBody.GetEndOfStream()}
	case *extprocv3.ProcessingRequest_ResponseBody:
		*f = frame{part: mem.BufferSlice{mem.SliceBuffer(r.ResponseBody.GetBody())}, end: r.ResponseBody.GetEndOfStream()}
	default:
		*f = frame{message: m}
	}
	return nil
}

// openPart finds the part of a body in a message, as proxies encode it: first the part,
// then what else the message has. It is false for any other message, which is then
// decoded as a whole.
func openPart(data mem.BufferSlice) (f frame, ok bool) {
	r := data.Reader()
	defer r.Close()
	total := r.Remaining()
	switch tag, _ := binary.ReadUvarint(r); tag {
	case protowire.EncodeTag(fieldRequestBody, protowire.BytesType):
		f.request = true
	case protowire.EncodeTag(fieldResponseBody, protowire.BytesType):
	default:
		return f, false
	}
	size, err := binary.ReadUvarint(r)
	if err != nil || size > uint64(r.Remaining()) {
		return f, false
	}
	rest := r.Remaining() - int(size) // bytes behind the part
	from, to, found := 0, 0, false
	for r.Remaining() > rest {
		switch tag, _ := binary.ReadUvarint(r); {
		case tag == protowire.EncodeTag(fieldBody, protowire.BytesType) && !found:
			n, err := binary.ReadUvarint(r)
			if err != nil || n > uint64(max(0, r.Remaining()-rest)) {
				return f, false
			}
			from = total - r.Remaining()
			to, found = from+int(n), true
			r.Discard(int(n))
		case tag == protowire.EncodeTag(fieldEnd, protowire.VarintType):
			n, err := binary.ReadUvarint(r)
			if err != nil {
				return f, false
			}
			f.end = n != 0
		default:
			return f, false
		}
	}
	if r.Remaining() != rest || rest > 0 && !saysNoMore(r) {
		return f, false
	}
	f.part = cut(data, from, to)
	return f, true
}

// saysNoMore reports whether the rest of a message is well formed, and changes nothing of
// the part of the body before it.
func saysNoMore(r io.Reader) bool {
	text, err := io.ReadAll(r)
	m := new(extprocv3.ProcessingRequest)
	return err == nil && proto.Unmarshal(text, m) == nil && m.GetRequest() == nil
}

// cut returns the bytes of data in [from, to), which the caller frees.
func cut(data mem.BufferSlice, from, to int) (part mem.BufferSlice) {
	at := 0
	for _, b := range data {
		if first, last := max(from-at, 0), min(to-at, b.Len()); first < last {
			part = append(part, b.Slice(first, last))
		}
		at += b.Len()
	}
	return part
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	e, ok := v.(*echo)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	size, tail := e.part.Len(), []byte(nil)
	if e.end {
		tail = protowire.AppendVarint(protowire.AppendTag(tail, fieldEnd, protowire.VarintType), 1)
	}
	field := protowire.Number(fieldResponseEcho)
	if e.request {
		field = fieldRequestEcho
	}
	streamed := 1 + protowire.SizeBytes(size) + len(tail)
	mutation := 1 + protowire.SizeBytes(streamed)
	common := 1 + protowire.SizeBytes(mutation)
	head := make([]byte, 0, 32)
	for _, one := range []struct {
		field protowire.Number
		size  int
	}{{field, 1 + protowire.SizeBytes(common)}, {fieldCommon, common}, {fieldMutation, mutation}, {fieldStreamed, streamed}, {fieldBody, size}} {
		head = protowire.AppendVarint(protowire.AppendTag(head, one.field, protowire.BytesType), uint64(one.size))
	}
	e.part.Ref() // gRPC frees what it has sent
	data := append(make(mem.BufferSlice, 0, len(e.part)+2), mem.SliceBuffer(head))
	data = append(data, e.part...)
	if tail != nil {
		data = append(data, mem.SliceBuffer(tail))
	}
	return data, nil
}
