package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// imageWait is the time limit for writing the image.
const imageWait = 5 * time.Minute

// compareImage starts the model without and with an image in turns, and prints the
// medians. A first start makes the image, learns the cost of steps and brings the
// model into the page cache.
func compareImage(binary, model string, runs int) (err error) {
	dir, err := os.MkdirTemp("", "forebay-startup-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	without := []string{"--model", model, "--engine.model_id", "bench", "--engine.cost_file", filepath.Join(dir, "cost.json")}
	with := append(slices.Clone(without), "--engine.repack_cache", filepath.Join(dir, "images"))
	first, err := start(binary, with...)
	if err != nil {
		return err
	}
	if err := errors.Join(waitForImage(filepath.Join(dir, "images")), first.stop()); err != nil {
		return err
	}
	fmt.Printf("| %d starts each, by turns | ready: median | range | first token: median | range |\n|---|--:|--:|--:|--:|\n", runs)
	fmt.Printf("| nothing known, image being written | %d ms | | | |\n", first.ready.Milliseconds())
	var cold, warm [2][]time.Duration
	for range runs {
		for args, times := range map[*[]string]*[2][]time.Duration{&without: &cold, &with: &warm} {
			ready, token, err := startAndAsk(binary, *args)
			if err != nil {
				return err
			}
			times[0], times[1] = append(times[0], ready), append(times[1], token)
		}
	}
	printTimes("packed at the start", cold)
	printTimes("with the image", warm)
	return nil
}

func waitForImage(dir string) error {
	for began := time.Now(); time.Since(began) < imageWait; time.Sleep(100 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(dir, "*.repack")); len(found) > 0 {
			return nil
		}
	}
	return fmt.Errorf("no repack image within %v", imageWait)
}

// startAndAsk measures the time until ready, and until the first token.
func startAndAsk(binary string, args []string) (ready, token time.Duration, err error) {
	p, err := start(binary, args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	const body = `{"model":"bench","prompt":"Hello","max_tokens":1,"ignore_eos":true}`
	r, err := http.Post("http://"+p.listen+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 4096))
	if r.StatusCode != http.StatusOK {
		return 0, 0, errors.Join(err, fmt.Errorf("%s: %s", r.Status, text))
	}
	return p.ready, time.Since(p.began), err
}

func printTimes(name string, times [2][]time.Duration) {
	fmt.Printf("| %s |", name)
	for _, t := range times {
		slices.Sort(t)
		fmt.Printf(" %d ms | %d–%d |", t[len(t)/2].Milliseconds(), t[0].Milliseconds(), t[len(t)-1].Milliseconds())
	}
	fmt.Println()
}
