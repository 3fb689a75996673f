package picker

import (
	"bytes"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

var testCodec = codec{encoding.GetCodecV2("proto")}

// inBuffers are bytes in buffers of so many bytes, as they come over HTTP/2.
func inBuffers(text []byte, size int) (data mem.BufferSlice) {
	for len(text) > 0 {
		n := min(size, len(text))
		data = append(data, mem.Copy(text[:n], mem.NopBufferPool{}))
		text = text[n:]
	}
	return data
}

func bodyMessage(request bool, part []byte, end bool) *extprocv3.ProcessingRequest {
	b := &extprocv3.HttpBody{Body: part, EndOfStream: end}
	if request {
		return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: b}}
	}
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: b}}
}

// TestPartsAreNotCopied: a part of a body is found in place, however it lies in buffers,
// and goes back as proto encodes it.
func TestPartsAreNotCopied(t *testing.T) {
	for _, size := range []int{0, 1, 127, 128, 5000, 70000} {
		for _, buffer := range []int{1, 3, 1000, 16384, 1 << 20} {
			if size > 5000 && buffer < 1000 {
				continue
			}
			part := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			for i := range 8 {
				request, end, more := i&1 == 0, i&2 == 0, i&4 == 0
				wire, err := proto.Marshal(bodyMessage(request, part, end))
				if err != nil {
					t.Fatal(err)
				}
				if more { // what Envoy adds, behind, when it is told to show metadata
					rest, _ := proto.Marshal(&extprocv3.ProcessingRequest{MetadataContext: &corev3.Metadata{}, ObservabilityMode: true})
					wire = append(wire, rest...)
				}
				data := inBuffers(wire, buffer)
				f, ok := openPart(data)
				if !ok || f.message != nil || f.request != request || f.end != end || !bytes.Equal(f.part.Materialize(), part) {
					t.Fatalf("%d bytes in buffers of %d, case %d: %v, %d bytes, request %v, end %v", size, buffer, i, ok, f.part.Len(), f.request, f.end)
				}
				back, err := testCodec.Marshal(&echo{part: f.part, request: request, end: end})
				if err != nil {
					t.Fatal(err)
				}
				got := new(extprocv3.ProcessingResponse)
				if err := proto.Unmarshal(back.Materialize(), got); err != nil {
					t.Fatal(err)
				}
				b := got.GetResponseBody()
				if request {
					b = got.GetRequestBody()
				}
				if s := b.GetResponse().GetBodyMutation().GetStreamedResponse(); s == nil || !bytes.Equal(s.GetBody(), part) || s.GetEndOfStream() != end {
					t.Fatalf("%d bytes, case %d: %d bytes go back", size, i, len(s.GetBody()))
				}
				back.Free()
				f.part.Free()
				data.Free()
			}
		}
	}
}

// TestPartAllocations: what is allocated for a part does not grow with its bytes.
func TestPartAllocations(t *testing.T) {
	wire, err := proto.Marshal(bodyMessage(true, make([]byte, 220<<10), true))
	if err != nil {
		t.Fatal(err)
	}
	data := inBuffers(wire, 16384)
	defer data.Free()
	got := testing.AllocsPerRun(100, func() {
		var f frame
		if err := testCodec.Unmarshal(data, &f); err != nil || f.message != nil {
			t.Fatal(err)
		}
		f.part.Free()
	})
	if got > 8 {
		t.Errorf("%v allocations for a part in 14 buffers", got)
	}
}

// FuzzFrame: whatever a proxy sends is read as proto reads it, or refused as it is.
func FuzzFrame(f *testing.F) {
	for _, m := range []*extprocv3.ProcessingRequest{bodyMessage(true, []byte("abc"), true), bodyMessage(false, nil, false), {ObservabilityMode: true}} {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire, byte(3))
	}
	f.Add([]byte{0x22, 5, 0x0a, 1, 'a', 0x0a, 0}, byte(1)) // a body twice
	f.Add([]byte{0x22, 3, 0x0a, 1, 'a', 0x32, 0}, byte(1)) // and then trailers
	f.Fuzz(func(t *testing.T, wire []byte, size byte) {
		want := new(extprocv3.ProcessingRequest)
		wrong := proto.Unmarshal(wire, want)
		data := inBuffers(wire, int(size)+1)
		defer data.Free()
		var got frame
		if err := testCodec.Unmarshal(data, &got); (err == nil) != (wrong == nil) {
			t.Fatalf("%v, and proto says %v", err, wrong)
		}
		if wrong != nil {
			return
		}
		defer got.part.Free()
		request, answer := want.GetRequestBody(), want.GetResponseBody()
		switch {
		case request != nil:
			if !got.request || got.end != request.GetEndOfStream() || !bytes.Equal(got.part.Materialize(), request.GetBody()) {
				t.Fatalf("got %v, want %v", got, request)
			}
		case answer != nil:
			if got.request || got.message != nil || got.end != answer.GetEndOfStream() || !bytes.Equal(got.part.Materialize(), answer.GetBody()) {
				t.Fatalf("got %v, want %v", got, answer)
			}
		case !proto.Equal(got.message, want):
			t.Fatalf("got %v, want %v", got.message, want)
		}
	})
}
