package gateway

import (
	"strconv"

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
	at := len(r.items) - 1
	b = append(r.head(b, kind), `,"output_index":`...)
	b = strconv.AppendInt(b, int64(at), 10)
	return appendString(append(b, `,"item_id":`...), r.items[at].id)
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

// start ends the item that is open and begins another.
func (r *responseState) start(b []byte, item responseItem) []byte {
	if r.open {
		b = r.stop(b, false)
	}
	r.items, r.open, r.lead = append(r.items, item), true, r.lead[:0]
	if !r.stream {
		return b
	}
	b = append(r.head(b, "response.output_item.added"), `,"output_index":`...)
	b = append(strconv.AppendInt(b, int64(len(r.items)-1), 10), `,"item":`...)
	b = r.closed(r.item(b, &r.items[len(r.items)-1], "in_progress"))
	if item.kind == messageItem {
		b = append(r.itemHead(b, "response.content_part.added"), `,"content_index":0,"part":`...)
		b = r.closed(item.part(b))
	}
	return b
}

// more adds text to the item that is open. The input of a custom tool comes as a whole, at
// its end.
func (r *responseState) more(b []byte, text string) []byte {
	item := &r.items[len(r.items)-1]
	item.text = append(item.text, text...)
	fresh := r.logprobs
	if item.kind == messageItem && len(fresh) > 0 {
		item.logprobs = append(comma(item.logprobs), fresh...)
	}
	r.logprobs = r.logprobs[:0]
	if !r.stream || text == "" || item.kind == callItem && r.custom[item.name] {
		return b
	}
	switch item.kind {
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

// stop ends the item that is open; cut says that it is not whole.
func (r *responseState) stop(b []byte, cut bool) []byte {
	item := &r.items[len(r.items)-1]
	item.cut, r.open = cut, false
	if !r.stream {
		return b
	}
	text := string(item.text)
	switch {
	case item.kind == messageItem:
		b = appendString(append(r.itemHead(b, "response.output_text.done"), `,"content_index":0,"text":`...), text)
		b = r.closed(append(append(append(b, `,"logprobs":[`...), item.logprobs...), ']'))
		b = append(r.itemHead(b, "response.content_part.done"), `,"content_index":0,"part":`...)
		b = r.closed(item.part(b))
	case item.kind == reasoningItem:
		b = r.closed(appendString(append(r.itemHead(b, "response.reasoning_text.done"), `,"content_index":0,"text":`...), text))
	case r.custom[item.name]:
		b = r.closed(appendString(append(r.itemHead(b, "response.custom_tool_call_input.delta"), `,"delta":`...), item.input()))
		b = r.closed(appendString(append(r.itemHead(b, "response.custom_tool_call_input.done"), `,"input":`...), item.input()))
	default:
		b = appendString(append(r.itemHead(b, "response.function_call_arguments.done"), `,"name":`...), item.name)
		b = r.closed(appendString(append(b, `,"arguments":`...), text))
	}
	b = append(r.head(b, "response.output_item.done"), `,"output_index":`...)
	b = append(strconv.AppendInt(b, int64(len(r.items)-1), 10), `,"item":`...)
	return r.closed(r.item(b, item, item.status()))
}

func (i *responseItem) status() string {
	if i.cut {
		return "incomplete"
	}
	return "completed"
}

// part is a message's only part.
func (i *responseItem) part(b []byte) []byte {
	b = appendString(append(b, `{"type":"output_text","text":`...), string(i.text))
	b = append(append(b, `,"annotations":[],"logprobs":[`...), i.logprobs...)
	return append(b, "]}"...)
}

// item appends an item; in progress it has no content yet.
func (r *responseState) item(b []byte, i *responseItem, status string) []byte {
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
	for i := range r.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.item(b, &r.items[i], r.items[i].status())
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
