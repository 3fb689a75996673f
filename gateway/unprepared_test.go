package gateway

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

// foreseer is a Controller that refuses everybody, before the prompt is prepared too.
type foreseer struct {
	refuser
	asked *[]admission.Demand
}

func (c foreseer) Refuse(d *admission.Demand) error {
	*c.asked = append(*c.asked, *d)
	return c.refusal
}

// TestRefusedBeforeItIsPrepared: the engine hears nothing of such a request, and its
// answer and its record are those of a refusal on arrival.
func TestRefusedBeforeItIsPrepared(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 100})})
	refusal := &admission.Refusal{Reason: admission.Late, Message: "no", RetryAfter: 3 * time.Second}
	var asked []admission.Demand
	early := foreseer{refuser{r.gw.admission, refusal}, &asked}
	ask := func(key, fields string) (resp response, rec telemetry.Record, prepared bool) {
		before := len(r.fake.Records())
		resp = r.as(key, chatBody(fields))
		r.settled()
		return resp, r.recorder.Last(1)[0], len(r.fake.Records()) > before
	}

	r.gw.admission = early.refuser
	late, lateRecord, prepared := ask("sk-full", `"max_tokens":7,"n":2`)
	if !prepared || late.status != 503 {
		t.Fatalf("the control: %d, prepared %v", late.status, prepared)
	}
	r.gw.admission = early
	resp, rec, prepared := ask("sk-full", `"max_tokens":7,"n":2`)
	if prepared || resp.status != late.status || resp.body != late.body {
		t.Errorf("prepared %v: %d %s", prepared, resp.status, resp.body)
	}
	for _, header := range []string{waitHeader, waitReasonHeader, classHeader} {
		if resp.header.Get(header) != late.header.Get(header) {
			t.Errorf("%s is %q, not %q", header, resp.header.Get(header), late.header.Get(header))
		}
	}
	checkRetry(t, "before it is prepared", resp, 3*time.Second, 3750*time.Millisecond)
	if rec.Outcome != lateRecord.Outcome || rec.Refused != lateRecord.Refused || rec.Missed(rec.Finished) != lateRecord.Missed(lateRecord.Finished) || rec.Prepared < rec.Identified || rec.PromptTokens != 0 {
		t.Errorf("%+v, on arrival %+v", rec, lateRecord)
	}
	if d := asked[0]; d.Tenant != "full" || d.Class != "interactive" || d.Sequences != 2 || d.DecodeTokens != 14 || d.BodyBytes != len(chatBody(`"max_tokens":7,"n":2`)) {
		t.Errorf("%+v", d)
	}
}

// TestPreparedAllTheSame: a request that a budget may refuse first is prepared.
func TestPreparedAllTheSame(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{RequestsPerMinute: 100})})
	var asked []admission.Demand
	r.gw.admission = foreseer{refuser{r.gw.admission, &admission.Refusal{Reason: admission.Late}}, &asked}
	r.as("sk-poor", chatBody(""))
	r.settled()
	if n := len(r.fake.Records()); len(asked) != 0 || n != 1 {
		t.Errorf("asked about %d, prepared %d", len(asked), n)
	}
}
