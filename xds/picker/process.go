package picker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// Names of the endpoint picker protocol.
const (
	endpointKey     = "x-gateway-destination-endpoint" // a header, and a member of endpointSpace
	endpointSpace   = "envoy.lb"
	subsetKey       = "x-gateway-destination-endpoint-subset"
	subsetSpace     = "envoy.lb.subset_hint"
	objectiveHeader = "x-gateway-inference-objective"
	classHeader     = "x-forebay-class"
)

// service is ext_proc's service, whose messages are frames and echoes.
var service = grpc.ServiceDesc{
	ServiceName: extprocv3.ExternalProcessor_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName: "Process", ServerStreams: true, ClientStreams: true,
		Handler: func(s any, stream grpc.ServerStream) error { return s.(*Service).process(stream) },
	}},
}

// Register adds the picker and its health to a server, which needs the option Codec.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	server.RegisterService(&service, s)
	healthv1.RegisterHealthServer(server, health{s: s})
}

// process answers a proxy: one stream is one request.
func (s *Service) process(stream grpc.ServerStream) error {
	t := talk{s: s, stream: stream}
	defer t.drop()
	for !t.over {
		var f frame
		err := stream.RecvMsg(&f)
		switch {
		case errors.Is(err, io.EOF) || stream.Context().Err() != nil:
			f.part.Free()
			return nil
		case err != nil:
			return err
		}
		if err := t.hear(stream.Context(), &f); err != nil {
			return err
		}
	}
	return nil
}

// health tells proxies whether the picker picks. It implements healthv1.HealthServer.
type health struct {
	healthv1.UnimplementedHealthServer
	s *Service
}

// Check implements healthv1.HealthServer. The picker lives while it answers; it is
// ready while some replica takes requests.
func (h health) Check(_ context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	switch r.GetService() {
	case "liveness":
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
	case "", "readiness", extprocv3.ExternalProcessor_ServiceDesc.ServiceName:
		if h.s.ready() {
			return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}, nil
		}
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no service %q", r.GetService())
}

// talk is one request's stream. It belongs to the stream's goroutine.
type talk struct {
	s      *Service
	stream grpc.ServerStream
	q      question
	length int  // of the body, as its headers say; -1 for unsaid
	echo   bool // the proxy passes on the body as it is sent back
	answer bool // the proxy sends the answer's body, and passes on what is sent back
	asked  bool // the headers are answered, and the pick answers the body
	picked bool
	over   bool // nothing more is to be said, and the proxy goes on without

	kept  []mem.BufferSlice // the parts of the body that came, until the pick
	bytes int               // of them
	room  int               // taken of the service's room for bodies
}

// drop frees what is held of the body.
func (t *talk) drop() {
	for _, part := range t.kept {
		part.Free()
	}
	t.s.bodies.Add(int64(-t.room))
	t.kept, t.q.body, t.room = nil, nil, 0
}

// hear takes the next message, and answers it if the protocol asks for it.
func (t *talk) hear(ctx context.Context, f *frame) error {
	switch {
	case f.message != nil:
	case f.request:
		return t.body(ctx, f)
	case t.answer:
		return t.pass(f.part, false, f.end)
	default:
		f.part.Free()
		return t.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}})
	}
	switch r := f.message.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return t.headers(ctx, f.message, r.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		if t.echo && !t.picked {
			if err := t.release(ctx); err != nil || t.over {
				return err
			}
			if err := t.passKept(false); err != nil {
				return err
			}
		}
		return t.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}})
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return t.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return t.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}})
	}
	return status.Error(codes.Unimplemented, "the message is of no kind that is known")
}

func (t *talk) send(m *extprocv3.ProcessingResponse) error { return t.stream.SendMsg(m) }

// pass answers a part of a body that goes on as it came, and frees it.
func (t *talk) pass(part mem.BufferSlice, request, end bool) error {
	defer part.Free()
	return t.stream.SendMsg(&echo{part: part, request: request, end: end})
}

// headers begins the request. Where no body is sent, or it is passed on before the
// answer, it is picked now; where the proxy waits for an answer before it sends the
// body, it is told to go on; else it is answered after the body.
func (t *talk) headers(ctx context.Context, m *extprocv3.ProcessingRequest, h *extprocv3.HttpHeaders) error {
	t.q, t.length = readHeaders(h.GetHeaders())
	t.q.among = subset(m.GetMetadataContext())
	mode, said := modev3.ProcessingMode_FULL_DUPLEX_STREAMED, m.GetProtocolConfig()
	if said != nil {
		mode = said.GetRequestBodyMode()
		t.answer = said.GetResponseBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	}
	t.echo = mode == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	switch {
	case h.GetEndOfStream() || mode == modev3.ProcessingMode_NONE || mode == modev3.ProcessingMode_STREAMED:
		t.echo = false
		return t.release(ctx)
	case t.echo:
		return nil
	}
	// The body will come in one message, if it is asked for.
	if t.length < 0 {
		t.length = t.s.cfg.BodyMax
	}
	if tooLong := t.length > t.s.cfg.BodyMax; tooLong || !t.hold(t.length) {
		t.over, t.q.full = true, !tooLong
		return t.release(ctx)
	}
	t.asked = true
	return t.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}})
}

// hold takes room for a body, or for a part of it.
func (t *talk) hold(n int) bool {
	if !t.s.hold(n) {
		return false
	}
	t.room += n
	return true
}

// body takes a part of the body. The whole of it is looked at, if there is room for it.
func (t *talk) body(ctx context.Context, f *frame) error {
	switch {
	case t.picked && t.echo:
		return t.pass(f.part, true, f.end)
	case t.picked:
		f.part.Free()
		return t.send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}})
	}
	size := f.part.Len()
	t.kept = append(t.kept, f.part)
	t.bytes += size
	t.q.full = t.echo && !t.hold(size)
	if !f.end && t.bytes <= t.s.cfg.BodyMax && !t.q.full {
		return nil
	}
	if err := t.release(ctx); err != nil || t.over {
		return err
	}
	return t.passKept(f.end)
}

// passKept sends the parts of the body that were kept, where the proxy waits for them.
func (t *talk) passKept(end bool) error {
	defer t.drop()
	for i, part := range t.kept {
		if !t.echo {
			break
		}
		t.kept[i] = nil
		if err := t.pass(part, true, end && i == len(t.kept)-1); err != nil {
			return err
		}
	}
	return nil
}

// release picks, and tells the proxy. What it tells belongs to the body where that was
// asked about last, and else to the headers.
func (t *talk) release(ctx context.Context) error {
	if t.bytes <= t.s.cfg.BodyMax && !t.q.full {
		for _, part := range t.kept {
			for _, b := range part {
				t.q.body = append(t.q.body, b.ReadOnlyData())
			}
		}
	}
	began := time.Now()
	a := t.s.pick(ctx, &t.q)
	if t.s.parts.Took != nil {
		t.s.parts.Took(time.Since(began))
	}
	t.picked = true
	if a.refusal != 0 {
		t.over = true
		return t.send(refused(&a))
	}
	to := strings.Join(a.endpoints, ",")
	set := []*corev3.HeaderValueOption{header(endpointKey, to)}
	if a.class != "" {
		set = append(set, header(classHeader, a.class))
	}
	common := &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: set}}
	m := &extprocv3.ProcessingResponse{DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		endpointSpace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{endpointKey: structpb.NewStringValue(to)}}),
	}}}
	if t.asked {
		m.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: common}}
	} else {
		m.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: common}}
	}
	return t.send(m)
}

func header(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD, Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)}}
}

// refused is an answer to the client, in the form of the gateway's errors.
func refused(a *answer) *extprocv3.ProcessingResponse {
	kind := map[int]string{statusShed: "rate_limit_exceeded", statusNobody: "server_error"}[a.refusal]
	body, err := json.Marshal(map[string]any{"error": map[string]any{"message": a.why, "type": kind, "param": nil, "code": nil}})
	if err != nil {
		panic("picker: an error does not marshal: " + err.Error())
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(a.refusal)}, Body: body, Details: "endpoint_picker",
		Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{header("content-type", "application/json"), header("retry-after", "1")}},
	}}}
}

// readHeaders keeps what a pick looks at, and the length of the body, -1 for unsaid.
func readHeaders(h *corev3.HeaderMap) (q question, length int) {
	length = -1
	for _, one := range h.GetHeaders() {
		value := one.GetValue()
		if raw := one.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		switch one.GetKey() {
		case ":path":
			q.path, _, _ = strings.Cut(value, "?")
		case "content-length":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 {
				length = n
			}
		case "authorization":
			q.authorization = value
		case "x-api-key":
			q.apiKey = value
		case "x-forwarded-client-cert":
			q.certificate = value
		case classHeader:
			q.class = value
		case objectiveHeader:
			q.objective = value
		}
	}
	return q, length
}

// subset is the list of replicas that the proxy allows, nil for all.
func subset(m *corev3.Metadata) []string {
	v, ok := m.GetFilterMetadata()[subsetSpace].GetFields()[subsetKey]
	if !ok {
		return nil
	}
	list := []string{}
	for _, one := range v.GetListValue().GetValues() {
		list = append(list, one.GetStringValue())
	}
	if text := v.GetStringValue(); text != "" {
		list = append(list, strings.Split(text, ",")...)
	}
	return list
}
