package httpd

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestWhatIsLeftOfAFlushFollows has a client that reads late: what the connection does
// not take at once leaves with the next flush, and the chunks stay whole.
func TestWhatIsLeftOfAFlushFollows(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<19)
	read := make(chan struct{})
	_, _, address := serving(t, limits, func(r Request) {
		out := r.Output(10 * time.Second)
		out.OpenStream(nil)
		for i, piece := range []string{"first ", large, " last"} {
			out.Buf = append(out.Buf, piece...)
			if all := out.FlushNow(); all && i > 0 {
				t.Errorf("piece %d left at once", i)
			}
			if out.Written > int64(len(large)) {
				t.Errorf("%d bytes written", out.Written)
			}
		}
		close(read)
		if err := out.Flush(); err != nil {
			t.Error(err)
		}
		out.Buf = append(out.Buf, " of all"...)
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	c, br := dial(t, address)
	io.WriteString(c, get)
	<-read
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "first "+large+" last of all" {
		t.Errorf("%d bytes came, %v", len(body), err)
	}
}
