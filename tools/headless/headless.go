// Package headless opens tabs in a headless Chromium, for tests of web pages.
package headless

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Variable is an environment variable: with the value "required", tests fail if there is no Chromium.
const Variable = "VPROF_BROWSER"

// A Tab is a tab of a Chromium that ends with its test, with the errors in its console.
type Tab struct {
	context.Context
	mu     sync.Mutex
	errors []string
}

// Find returns the path of a Chromium. Without one it skips the test, or fails it (see [Variable]).
func Find(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv(Variable) == "required" {
		t.Fatal("there is no Chromium: install chromium")
	}
	t.Skip("there is no Chromium")
	return ""
}

// Open starts a Chromium with an empty tab of a size in pixels. It ends with the test, at most after eight minutes.
func Open(t testing.TB, width, height int64) *Tab {
	t.Helper()
	found := Find(t)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(found), chromedp.NoSandbox, chromedp.DisableGPU)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(cancel)
	b := &Tab{Context: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, height)))
	return b
}

// listen adds console errors and exceptions to the tab's errors.
func (b *Tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		b.Add(fmt.Sprint("console: ", e.Type, " ", e.Args))
	case *runtime.EventExceptionThrown:
		b.Add(fmt.Sprint(e.ExceptionDetails))
	}
}

// Add adds an error to the tab's errors.
func (b *Tab) Add(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, text)
}

// Quiet fails the test if the console has shown errors.
func (b *Tab) Quiet(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.errors, "the console shows errors")
}

// Forget drops the errors so far, for a test that provokes them.
func (b *Tab) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = nil
}

// Value returns the value of a JavaScript expression in the page.
func Value[T any](t testing.TB, b context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(t, err, expression)
	return v
}
