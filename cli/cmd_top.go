package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/forebay-io/forebay/gateway/debug"
)

// topRequests is how many running requests are shown.
const topRequests = 10

// runTop shows the state of a running Forebay once a second, until q is pressed.
func runTop(c *console, args []string) error {
	set := newFlagSet("top [--once] [--admin ADDR]")
	once := set.Bool("once", false, "print it once, as where the output is no terminal")
	base, _, err := c.adminURL(set, args, 0)
	if err != nil {
		return err
	}
	text, err := topText(base)
	if err != nil {
		return err
	}
	if *once || !term.IsTerminal(int(c.out.Fd())) || !term.IsTerminal(int(c.in.Fd())) {
		_, err = io.WriteString(c.out, text)
		return err
	}
	return c.topScreen(base, text)
}

// Control sequences: an alternate screen without a cursor, and back.
const (
	screenOpen  = "\x1b[?1049h\x1b[?25l"
	screenClose = "\x1b[?25h\x1b[?1049l"
	screenHome  = "\x1b[H"
	lineRest    = "\x1b[K" // clear to the end of the line
	screenRest  = "\x1b[J" // clear to the end of the screen
)

// quitKeys end top. In raw mode, Ctrl-C and Ctrl-D are keys too.
const quitKeys = "qQ\x03\x04"

// topScreen shows text and renews it each second, until q or an interrupt.
func (c *console) topScreen(base, text string) error {
	keyboard := int(c.in.Fd())
	before, err := term.MakeRaw(keyboard)
	if err != nil {
		return fmt.Errorf("the terminal cannot be set up; --once needs none: %w", err)
	}
	defer term.Restore(keyboard, before)
	fmt.Fprint(c.out, screenOpen)
	defer fmt.Fprint(c.out, screenClose)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	keys := make(chan rune)
	go func() { // ends with the process: a read of the terminal cannot be called off
		for r := bufio.NewReader(c.in); ; {
			key, _, err := r.ReadRune()
			if err != nil {
				return
			}
			keys <- key
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		c.drawTop(text)
		select {
		case <-ctx.Done():
			return nil
		case key := <-keys:
			if strings.ContainsRune(quitKeys, key) {
				return nil
			}
		case <-tick.C:
			if text, err = topText(base); err != nil {
				text = err.Error() + "\n"
			}
		}
	}
}

// drawTop draws text over the whole screen, cut to its size.
func (c *console) drawTop(text string) {
	width, height, err := term.GetSize(int(c.out.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	var b strings.Builder
	b.WriteString(screenHome)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines[:min(len(lines), height-1)] {
		b.WriteString(cutLine(line, width) + lineRest + "\r\n")
	}
	b.WriteString(cutLine("q quits", width) + screenRest)
	io.WriteString(c.out, b.String())
}

// topText asks for the current state and formats it.
func topText(base string) (string, error) {
	var queue debug.QueuePage
	var requests debug.RequestsPage
	var steps debug.StepsPage
	for _, ask := range []struct {
		path string
		page any
	}{{"queue", &queue}, {"requests", &requests}, {"steps", &steps}} {
		if _, err := askPage(base, "/debug/"+ask.path+"?format=json", ask.page); err != nil {
			return "", err
		}
	}
	var b strings.Builder
	printTop(&b, &queue, &requests, &steps)
	return b.String(), nil
}

func printTop(w io.Writer, queue *debug.QueuePage, requests *debug.RequestsPage, steps *debug.StepsPage) {
	decoded, prefilled, busy := 0.0, 0.0, 0.0
	if len(steps.Steps) > 0 {
		over := max(1, steps.OverMS+steps.Steps[0].AgoMS) // it may be idle since
		decoded, prefilled = 1000*float64(steps.DecodeTokens)/over, 1000*float64(steps.PrefillTokens)/over
		busy = steps.Busy * steps.OverMS / over
	}
	r := &requests.Recent
	fmt.Fprintf(w, "tokens/s     %.0f made, %.0f of prompts; steps are %.0f%% of the time\n", decoded, prefilled, 100*busy)
	fmt.Fprintf(w, "first token  %s median, %s at 99%%; %d requests, %d failed in the last %.0f s\n", millis(r.FirstTokenP50), millis(r.FirstTokenP99), r.Finished, r.Failed, r.OverMS/1000)
	fmt.Fprintf(w, "pages        %s %d used, %d cached, %d free of %d; %d sequences\n", meter(steps.Pages), steps.Pages.Used, steps.Pages.Cached, steps.Pages.Free, steps.Pages.Total, steps.Sequences)
	if steps.Error != "" {
		fmt.Fprintf(w, "engine       %s\n", steps.Error)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nCLASS\tMODE\tRUNNING\tWAITING\tSHARE\tBACKLOG\tREFUSED")
	for _, c := range queue.Classes {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.0f%%\t%s\t%d\n", ofGroup(c.Name, c.Group), c.Mode, c.Running, c.Waiting, 100*c.Share, millis(c.BacklogMS), c.Refused)
	}
	if all := requests.InFlight; len(all) > 0 { // the oldest first
		fmt.Fprintln(t, "\nREQUEST\tTENANT\tCLASS\tSTAGE\tIN IT FOR\tAGE\tTOKENS")
		for _, q := range all[:min(len(all), topRequests)] {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", traceName(q.ID, q.ClientID), q.Tenant, q.Class, q.Stage, millis(q.StageMS), millis(q.AgeMS), q.Tokens)
		}
		if more := len(all) - topRequests; more > 0 {
			fmt.Fprintf(t, "and %d more\n", more)
		}
	}
	t.Flush()
}

// meter draws the use of the pages as a bar.
func meter(p debug.KVPages) string {
	const width = 20
	if p.Total <= 0 {
		return "[" + strings.Repeat(" ", width) + "]"
	}
	used := min(width, (p.Used*width+p.Total-1)/p.Total)
	cached := min(width-used, p.Cached*width/p.Total)
	return "[" + strings.Repeat("#", used) + strings.Repeat("-", cached) + strings.Repeat(" ", width-used-cached) + "]"
}
