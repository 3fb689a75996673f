package engine_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/internal/wire"
)

func Example() {
	e, err := engine.New(engine.Config{}) // the embedded demo model
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()

	options := wire.Options{N: 1, MaxTokens: 32}
	prompt, err := e.Prepare(context.Background(), &wire.Request{
		Messages: json.RawMessage(`[{"role":"user","content":"Hello!"}]`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	notify := make(chan struct{}, 1)
	stream := e.Generate(&wire.Generation{Prompt: prompt, Options: options, Notify: notify})
	defer stream.Close()
	for range notify {
		for _, event := range stream.Take(nil) {
			fmt.Print(event.Text)
			if event.End != nil {
				fmt.Printf("\n%d tokens\n", event.End.Usage.Completion)
				return
			}
		}
	}
	// Output:
	// Hello! How can I help you today?
	// 10 tokens
}
