package gateway

import (
	"strconv"
	"strings"

	"github.com/forebay-io/forebay/internal/wire"
)

// This file spells a response and the events of its stream. Every event has its name twice and
// the next sequence number.

// opened begins an event that holds the response.
func (r *responseState) opened(b []byte, kind string) []byte {
	return append(r.head(b, kind), `,"response":`...)
}

func (r *responseState) closed(b []byte) []byte { return append(b, "}\n\n"...) }

// head begins an event.
func (r *responseState) head(b []byte, kind string) []byte {
	b = append(append(append(b, "event: "...), kind...), "\ndata: {\"type\":\""...)
	b = append(append(b, kind...), `","sequence_number":`...)
	b = strconv.AppendInt(b, int64(r.sequence), 10)
	r.sequence++
	return b
}

// itemHead begins an event of the last item.
func (r *responseState) itemHead(b []byte, kind string) []byte {
	at := len(r.all) - 1
	b = append(r.head(b, kind), `,"output_index":`...)
	b = strconv.AppendInt(b, int64(at), 10)
	return appendString(append(b, `,"item_id":`...), r.all[at].id)
}

// begin sends the first events, once.
func (r *responseState) begin(b []byte) []byte {
	if r.begun || !r.stream {
		return b
	}
	r.begun = true
	for _, kind := range []string{"response.created", "response.in_progress"} {
		b = r.closed(r.object(r.opened(b, kind), "in_progress", nil, nil))
	}
	return b
}

// started implements spelling.
func (r *responseState) started(b []byte, i *item) []byte {
	i.id = itemPrefixes[i.kind] + strings.TrimPrefix(r.id, "resp_") + strconv.Itoa(len(r.all)-1)
	if i.kind != messageItem {
		r.logprobs = r.logprobs[:0] // those of what is no text are not told
	}
	if !r.stream {
		return b
	}
	b = append(r.head(b, "response.output_item.added"), `,"output_index":`...)
	b = append(strconv.AppendInt(b, int64(len(r.all)-1), 10), `,"item":`...)
	b = r.closed(r.item(b, i, "in_progress"))
	if i.kind == messageItem {
		b = append(r.itemHead(b, "response.content_part.added"), `,"content_index":0,"part":`...)
		b = r.closed(i.part(b))
	}
	return b
}

// grown implements spelling. The input of a custom tool comes as a whole, at its end.
func (r *responseState) grown(b []byte, i *item, text string) []byte {
	fresh := r.logprobs
	if i.kind == messageItem && len(fresh) > 0 {
		i.logprobs = append(comma(i.logprobs), fresh...)
	}
	r.logprobs = r.logprobs[:0]
	if !r.stream || text == "" || i.kind == callItem && r.custom[i.name] {
		return b
	}
	switch i.kind {
	case messageItem:
		b = appendString(append(r.itemHead(b, "response.output_text.delta"), `,"content_index":0,"delta":`...), text)
		b = append(append(append(b, `,"logprobs":[`...), fresh...), ']')
	case reasoningItem:
		b = appendString(append(r.itemHead(b, "response.reasoning_text.delta"), `,"content_index":0,"delta":`...), text)
	case callItem:
		b = appendString(append(r.itemHead(b, "response.function_call_arguments.delta"), `,"delta":`...), text)
	}
	return r.closed(b)
}

// stopped implements spelling.
func (r *responseState) stopped(b []byte, i *item) []byte {
	if i.kind != messageItem {
		r.logprobs = r.logprobs[:0]
	}
	if !r.stream {
		return b
	}
	text := string(i.text)
	switch {
	case i.kind == messageItem:
		b = appendString(append(r.itemHead(b, "response.output_text.done"), `,"content_index":0,"text":`...), text)
		b = r.closed(append(append(append(b, `,"logprobs":[`...), i.logprobs...), ']'))
		b = append(r.itemHead(b, "response.content_part.done"), `,"content_index":0,"part":`...)
		b = r.closed(i.part(b))
	case i.kind == reasoningItem:
		b = r.closed(appendString(append(r.itemHead(b, "response.reasoning_text.done"), `,"content_index":0,"text":`...), text))
	case r.custom[i.name]:
		b = r.closed(appendString(append(r.itemHead(b, "response.custom_tool_call_input.delta"), `,"delta":`...), i.input()))
		b = r.closed(appendString(append(r.itemHead(b, "response.custom_tool_call_input.done"), `,"input":`...), i.input()))
	default:
		b = appendString(append(r.itemHead(b, "response.function_call_arguments.done"), `,"name":`...), i.name)
		b = r.closed(appendString(append(b, `,"arguments":`...), text))
	}
	b = append(r.head(b, "response.output_item.done"), `,"output_index":`...)
	b = append(strconv.AppendInt(b, int64(len(r.all)-1), 10), `,"item":`...)
	return r.closed(r.item(b, i, i.status()))
}

func (i *item) status() string {
	if i.cut {
		return "incomplete"
	}
	return "completed"
}

// part is a message's only part.
func (i *item) part(b []byte) []byte {
	b = appendString(append(b, `{"type":"output_text","text":`...), string(i.text))
	b = append(append(b, `,"annotations":[],"logprobs":[`...), i.logprobs...)
	return append(b, "]}"...)
}

// item appends an item; in progress it has no content yet.
func (r *responseState) item(b []byte, i *item, status string) []byte {
	b = appendString(append(b, `{"id":`...), i.id)
	switch begins := status == "in_progress"; {
	case i.kind == messageItem:
		b = append(b, `,"type":"message","role":"assistant","content":[`...)
		if !begins {
			b = i.part(b)
		}
		b = append(b, ']')
	case i.kind == reasoningItem:
		b = append(b, `,"type":"reasoning","summary":[],"content":[`...)
		if !begins {
			b = append(appendString(append(b, `{"type":"reasoning_text","text":`...), string(i.text)), '}')
		}
		b = append(b, `],"encrypted_content":null`...)
	case r.custom[i.name]:
		b = appendString(append(b, `,"type":"custom_tool_call","call_id":`...), i.callID)
		b = appendString(append(b, `,"name":`...), i.name)
		b = appendString(append(b, `,"input":`...), map[bool]string{false: i.input()}[begins])
	default:
		b = appendString(append(b, `,"type":"function_call","call_id":`...), i.callID)
		b = appendString(append(b, `,"name":`...), i.name)
		if space := r.spaces[i.name]; space != "" {
			b = appendString(append(b, `,"namespace":`...), space)
		}
		b = appendString(append(b, `,"arguments":`...), string(i.text))
	}
	return append(append(append(b, `,"status":"`...), status...), `"}`...)
}

// object appends the response. u is nil where nothing is known yet, and f where nothing failed.
func (r *responseState) object(b []byte, status string, u *wire.Usage, f *failure) []byte {
	b = appendString(append(b, `{"id":`...), r.id)
	b = append(b, `,"object":"response","created_at":`...)
	b = strconv.AppendInt(b, r.created, 10)
	b = append(append(append(b, `,"status":"`...), status...), `","model":`...)
	b = append(appendString(b, r.model), `,"error":`...)
	if f == nil {
		b = append(b, "null"...)
	} else {
		b = appendString(append(b, `{"code":`...), faults[f.fault].code)
		b = append(appendString(append(b, `,"message":`...), f.message), '}')
	}
	b = append(b, `,"incomplete_details":`...)
	switch {
	case status != "incomplete":
		b = append(b, "null"...)
	case r.finish == wire.FinishFilter:
		b = append(b, `{"reason":"content_filter"}`...)
	default:
		b = append(b, `{"reason":"max_output_tokens"}`...)
	}
	b = append(b, `,"output":[`...)
	for i := range r.all {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.item(b, &r.all[i], r.all[i].status())
	}
	b = append(append(b, ']'), r.repeats...)
	if r.tier != "" {
		b = appendString(append(b, `,"service_tier":`...), r.tier)
	}
	b = append(b, `,"usage":`...)
	if u == nil {
		return append(b, "null}"...)
	}
	return append(appendResponseUsage(b, u), '}')
}

func appendResponseUsage(b []byte, u *wire.Usage) []byte {
	for _, n := range []struct {
		before string
		count  int
	}{
		{`{"input_tokens":`, u.Prompt}, {`,"input_tokens_details":{"cached_tokens":`, u.Cached}, {`},"output_tokens":`, u.Completion},
		{`,"output_tokens_details":{"reasoning_tokens":`, u.Reasoning}, {`},"total_tokens":`, u.Prompt + u.Completion},
	} {
		b = strconv.AppendInt(append(b, n.before...), int64(n.count), 10)
	}
	return append(b, '}')
}
