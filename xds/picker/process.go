package picker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
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

// Process implements extprocv3.ExternalProcessorServer: one stream is one request.
func (s *Service) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	t := talk{s: s, stream: stream}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) || stream.Context().Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := t.hear(stream.Context(), m); err != nil {
			return err
		}
	}
}

// health tells proxies whether the picker picks. It implements healthv1.HealthServer.
type health struct {
	healthv1.UnimplementedHealthServer
	s *Service
}

// Health is the health service of the picker.
func (s *Service) Health() healthv1.HealthServer { return health{s: s} }

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
	stream extprocv3.ExternalProcessor_ProcessServer
	q      question
	echo   bool // the proxy passes on the body as it is sent back
	answer bool // the proxy sends the answer's body, and passes on what is sent back
	kept   [][]byte
	bytes  int
	picked bool
}

// hear takes the next message, and answers it if the protocol asks for it.
func (t *talk) hear(ctx context.Context, m *extprocv3.ProcessingRequest) error {
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return t.headers(ctx, m, r.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		return t.body(ctx, r.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		if t.echo && !t.picked {
			if err := t.release(ctx); err != nil {
				return err
			}
			if err := t.sendBack(false); err != nil {
				return err
			}
		}
		return t.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}})
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return t.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}})
	case *extprocv3.ProcessingRequest_ResponseBody:
		b := &extprocv3.BodyResponse{}
		if t.answer {
			b = streamed(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())
		}
		return t.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}})
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return t.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}})
	}
	return status.Error(codes.Unimplemented, "the message is of no kind that is known")
}

// headers begins the request. Where no body is sent, or it is passed on before the
// answer, it is picked now; where the proxy waits for an answer before it sends the
// body, it is told to go on; else it is answered after the body.
func (t *talk) headers(ctx context.Context, m *extprocv3.ProcessingRequest, h *extprocv3.HttpHeaders) error {
	t.q = readHeaders(h.GetHeaders())
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
	return t.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}})
}

// body takes a part of the body. The whole of it is looked at, up to the limit.
func (t *talk) body(ctx context.Context, b *extprocv3.HttpBody) error {
	if t.picked {
		return t.sendBody(&extprocv3.CommonResponse{}, b.GetBody(), b.GetEndOfStream())
	}
	t.kept = append(t.kept, b.GetBody())
	t.bytes += len(b.GetBody())
	if !b.GetEndOfStream() && t.bytes <= t.s.cfg.BodyMax {
		return nil
	}
	if err := t.release(ctx); err != nil {
		return err
	}
	if t.echo {
		return t.sendBack(b.GetEndOfStream())
	}
	return nil
}

// sendBack sends the parts of the body that were kept.
func (t *talk) sendBack(end bool) error {
	for i, part := range t.kept {
		if err := t.sendBody(nil, part, end && i == len(t.kept)-1); err != nil {
			return err
		}
	}
	t.kept, t.q.body = nil, nil
	return nil
}

// sendBody answers a part of the body, which goes on as it came.
func (t *talk) sendBody(common *extprocv3.CommonResponse, part []byte, end bool) error {
	b := &extprocv3.BodyResponse{Response: common}
	if t.echo {
		b = streamed(part, end)
	}
	return t.stream.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}})
}

func streamed(part []byte, end bool) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: part, EndOfStream: end},
	}}}}
}

// release picks, and tells the proxy. What it tells belongs to the body where that was
// asked about last, and else to the headers.
func (t *talk) release(ctx context.Context) error {
	switch {
	case t.bytes > t.s.cfg.BodyMax: // it goes by load
	case len(t.kept) == 1:
		t.q.body = t.kept[0]
	default:
		t.q.body = slices.Concat(t.kept...)
	}
	a := t.s.pick(ctx, &t.q)
	t.picked = true
	if a.refusal != 0 {
		return t.stream.Send(refused(&a))
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
	if t.kept != nil && !t.echo {
		m.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: common}}
		t.kept, t.q.body = nil, nil
	} else {
		m.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: common}}
	}
	return t.stream.Send(m)
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

// readHeaders keeps what a pick looks at.
func readHeaders(h *corev3.HeaderMap) (q question) {
	for _, one := range h.GetHeaders() {
		value := one.GetValue()
		if raw := one.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		switch one.GetKey() {
		case ":path":
			q.path, _, _ = strings.Cut(value, "?")
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
	return q
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
