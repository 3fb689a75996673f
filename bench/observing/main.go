// Observing measures the cost of keeping records of requests and steps. It compares
// the throughput of Forebays that differ only in that setting, in bursts by turns.
// Two of them are equal, which shows the noise.
//
//	go build -o /tmp/forebay . && go run ./bench/observing /tmp/forebay [FLAGS OF SERVE]
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/forebay-io/forebay/internal/ports"
)

// variant is one Forebay. The others are compared with the first.
type variant struct {
	name  string
	flags []string
	url   string
	rates []float64 // requests a second, of each round
}

func main() {
	rounds := flag.Int("rounds", 40, "bursts for each")
	requests := flag.Int("requests", 200, "requests of a burst")
	streams := flag.Int("streams", 4, "requests at once")
	model := flag.String("model", "forebay-demo", "model to ask for")
	tokens := flag.Int("tokens", 32, "tokens of an answer")
	flag.Parse()
	if flag.NArg() < 1 {
		fmt.Fprintln(os.Stderr, "usage: observing [--rounds N] [--requests N] [--streams N] [--tokens N] [--model NAME] FOREBAY_BINARY [FLAGS OF SERVE]")
		os.Exit(2)
	}
	off := []string{"--capture.off", "--engine.step_records_off"}
	all := []*variant{{name: "off", flags: off}, {name: "off again", flags: off}, {name: "records, nothing kept", flags: []string{"--capture.off"}}, {name: "on"}}
	for _, v := range all {
		stop, err := v.start(flag.Arg(0), flag.Args()[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, "observing:", err)
			os.Exit(1)
		}
		defer stop()
	}
	body := fmt.Appendf(nil, `{"model":%q,"max_tokens":%d,"ignore_eos":true,"messages":[{"role":"user","content":"tell me a story"}]}`, *model, *tokens)
	for round := range *rounds + 1 {
		for _, i := range rand.Perm(len(all)) {
			rate := all[i].burst(body, *requests, *streams)
			if round > 0 { // the first warms up
				all[i].rates = append(all[i].rates, rate)
			}
		}
	}
	base := all[0].rates
	for _, v := range all {
		ratios := make([]float64, len(base))
		for i := range base {
			ratios[i] = v.rates[i] / base[i]
		}
		fmt.Printf("%-22s %8.1f requests/s, %+.2f %% of the first (quartiles %+.2f to %+.2f)\n", v.name,
			quantile(v.rates, 0.5), 100*(quantile(ratios, 0.5)-1), 100*(quantile(ratios, 0.25)-1), 100*(quantile(ratios, 0.75)-1))
	}
}

// start runs the variant's Forebay until it answers.
func (v *variant) start(binary string, more []string) (stop func(), err error) {
	listen, admin := ports.MustAddress(), ports.MustAddress()
	v.url = "http://" + listen
	cmd := exec.Command(binary, slices.Concat([]string{"serve", "--listen", listen, "--admin", admin, "--engine.cost_file", "none"}, v.flags, more)...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }
	for range 300 {
		if response, err := http.Get(v.url + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return stop, nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	return nil, fmt.Errorf("%s was not ready in time", v.name)
}

// burst sends requests over streams connections at once, and returns the answers a
// second.
func (v *variant) burst(body []byte, requests, streams int) float64 {
	began := time.Now()
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			for range requests / streams {
				response, err := http.Post(v.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
				if err != nil || response.StatusCode != http.StatusOK {
					fmt.Fprintln(os.Stderr, "observing: a request failed:", err, cmp.Or(response, new(http.Response)).Status)
					os.Exit(1)
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
	all.Wait()
	return float64(requests/streams*streams) / time.Since(began).Seconds()
}

func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1))]
}
