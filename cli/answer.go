package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// A request is a command line as JSON: a verb's flags by name, with numbers, strings, booleans, lists (joined by
// commas) and objects (a flag for each key), and arguments without a flag under [requestFiles].
type request map[string]any

// requestFiles is the key of arguments without a flag, such as trainers' files.
const requestFiles = "files"

// requestText is the key of the text that diagnose reads in place of a file.
const requestText = "text"

// longestRequest is the length limit of a request line, in bytes.
const longestRequest = 1 << 20

// commandLine returns a request's command line, whose result has a format. It refuses flags of files and output.
func (r request) commandLine(verb string, flags *pflag.FlagSet, format report.Format) ([]string, error) {
	args := []string{verb}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		values, err := requestValues(r[name])
		if err != nil {
			return nil, usagef("%s: %w", name, err)
		}
		if name == requestText && verb == "diagnose" {
			args = append(args, "-")
			continue
		}
		if name == requestFiles {
			for _, file := range values {
				if strings.HasPrefix(file, "-") { // it is no flag
					file = "./" + file
				}
				args = append(args, file)
			}
			continue
		}
		flag := flags.Lookup(name)
		if flag == nil || !requestable(flag) {
			meant := phrase.If(flag == nil, "%s", strings.Replace(similarFlag(flags, name), "--", "", 1))
			return nil, usagef("%s: requests for %s have no such option%s", name, verb, meant)
		}
		if _, object := r[name].(map[string]any); !object && len(values) > 1 {
			values = []string{strings.Join(values, ",")}
		}
		for _, v := range values {
			args = append(args, "--"+name+"="+v)
		}
	}
	return append(args, "--format="+string(format)), nil
}

// requestable reports whether requests may set a flag.
func requestable(flag *pflag.Flag) bool {
	return !flag.Hidden && groupOf(flag) != models.GroupOutput &&
		!slices.Contains([]string{helpAllFlag, offlineFlag, "help", "json-request", "json-lines", "request"}, flag.Name)
}

// requestValues returns the values of a flag from JSON.
func requestValues(v any) ([]string, error) {
	var all []string
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			text, ok := scalar(each)
			if !ok {
				return nil, errors.New("a list may hold only numbers and strings; remove other values from it")
			}
			all = append(all, text)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, ok := scalar(v[key])
			if !ok {
				return nil, fmt.Errorf("%s: need a number or a string as its value", key)
			}
			all = append(all, key+"="+text)
		}
	default:
		text, ok := scalar(v)
		if !ok {
			return nil, fmt.Errorf("invalid value %v: need a string, number, boolean or list", v)
		}
		all = []string{text}
	}
	return all, nil
}

// scalar formats a JSON value for the command line.
func scalar(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// parseRequest parses a request, in which options may also be under [moreOptionsKey].
func parseRequest(text []byte) (r request, err error) {
	if len(text) > longestRequest {
		return nil, usagef("the request is too long: need at most %d bytes", longestRequest)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if text = bytes.TrimSpace(text); !bytes.HasPrefix(text, []byte("{")) && string(text) != "null" {
		return nil, usagef(`need a JSON object of options, like {"model": "gpt2", "batch": 8}`)
	}
	if err := d.Decode(&r); err != nil {
		return nil, usagef("the request is not a JSON object of options: %w", err)
	}
	more, given := r[moreOptionsKey].(map[string]any)
	if _, has := r[moreOptionsKey]; has && !given {
		return nil, usagef("%s: need an object of options by name", moreOptionsKey)
	}
	delete(r, moreOptionsKey)
	for name, v := range more {
		if _, twice := r[name]; twice {
			return nil, usagef("%s: the option is given twice in the request; remove one", name)
		}
		r[name] = v
	}
	return r, nil
}

type verbAnswer struct {
	code exitCode
	// text is the verb's standard output, and result its JSON if it is JSON.
	text    []byte
	result  json.RawMessage
	message string
	// document is the report that text was made from; nil where the verb made none.
	document report.Document
	// err is the verb's error, which the message has among the warnings.
	err error
}

func usageAnswer(err error) verbAnswer {
	return verbAnswer{code: exitUsage, message: input.Message(err), err: err}
}

// runVerb runs a verb with its flags in this process. With only set, it creates no other verb.
func (a *app) runVerb(
	ctx context.Context, verb string, only func(*app) *cobra.Command, flags *pflag.FlagSet, r request,
	format report.Format,
) verbAnswer {
	text, _ := r[requestText].(string)
	args, err := r.commandLine(verb, flags, format)
	if err != nil {
		return usageAnswer(err)
	}
	return a.runArgs(ctx, only, text, args)
}

// runArgs runs a command line in this process, with a text as standard input.
func (a *app) runArgs(ctx context.Context, only func(*app) *cobra.Command, stdin string, args []string) verbAnswer {
	var out, errs bytes.Buffer
	own := &app{
		stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, now: a.now, models: a.models,
		residuals: a.residuals, detect: a.detect, openGPU: a.openGPU, gpus: a.gpus, trials: a.trials,
		onlyVerb: only, onProgress: a.onProgress, onPartialPlan: a.onPartialPlan,
	}
	cmd, err := own.execute(ctx, args)
	s := verbAnswer{code: own.reportError(cmd, err), err: err, document: own.printed}
	s.message, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(errs.String()), "vprof: "), "\nSee \"vprof ")
	if s.text = out.Bytes(); json.Valid(s.text) {
		s.result = s.text
	}
	return s
}

// errSeveralPlans is the error of a request whose answer is several plans.
var errSeveralPlans = usagef("torch and rank: a request may name only one release of PyTorch and one rank")

// response returns the answer to a request for a plan.
func (s verbAnswer) response() *report.Response {
	plans := s.reports()
	if len(plans) > 1 {
		s = usageAnswer(errSeveralPlans)
	}
	answer := &report.Response{Schema: report.ResponseSchema, ExitCode: int(s.code), Message: s.message}
	if len(plans) == 1 {
		answer.FillFrom(plans...)
	}
	return answer
}

// reports returns the plans of an answer: one, or one of each release or rank that was asked for.
func (s verbAnswer) reports() []*report.Report {
	switch d := s.document.(type) {
	case *report.Report:
		return []*report.Report{d}
	case report.Releases:
		return d
	case report.Ranks:
		return lists.Map(d, func(rank report.RankPlan) *report.Report { return rank.Plan })
	}
	return nil
}

// embeddedApp returns the app that answers other Go programs. It opens no GPU, and runs Python only for --stack.
var embeddedApp = sync.OnceValue(func() *app {
	a := newSystemApp()
	if a.localCuDNN != nil {
		a.localCuDNN.Silent = true
	}
	none := noGPUError{"package vprof simulates GPUs", simulateHint}
	a.detect = func(int) (localGPU, error) { return localGPU{}, none }
	a.openGPU = func(int) (device.Device, error) { return nil, none }
	a.rememberTrials()
	return a
})

// Ask answers a request to plan, fit or smoke, a JSON object of the verb's options, for another Go program. It decodes
// the verb's JSON into result and returns the verb's warnings. It leaves the process as it is and writes to no stream;
// several goroutines may ask at once. An error of the request has a method Usage that returns true.
func Ask(ctx context.Context, verb string, text []byte, result any) (warnings string, err error) {
	r, err := parseRequest(text)
	if err != nil {
		return "", err
	}
	a, only := embeddedApp(), map[string]func(*app) *cobra.Command{
		"plan": newPlanCmd, "fit": newFitCmd, "smoke": newSmokeCmd,
	}[verb]
	s := a.runVerb(ctx, verb, only, only(a).Flags(), r, report.JSON)
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("interrupted: %w", ctx.Err())
	case s.code == exitUsage:
		return "", usageError{s.err}
	case s.result == nil || s.code == exitFailure:
		return "", s.err
	case json.Unmarshal(s.result, result) != nil:
		return "", errSeveralPlans
	}
	return s.message, nil
}

// rememberTrials reuses recorded trials for later requests of the same case.
func (a *app) rememberTrials() {
	if a.trials == nil {
		a.trials = &step.CachedExecutor{}
	}
}

func withLineOfKey(name string, text []byte, message string) string {
	r, err := parseRequest(text)
	at := len(text)
	if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
		at = int(syntax.Offset)
	}
	for _, key := range slices.Sorted(maps.Keys(r)) {
		named := regexp.MustCompile(`^(--)?` + regexp.QuoteMeta(key) + `\b`).MatchString(message)
		if i := bytes.Index(text, []byte(strconv.Quote(key))); named && i >= 0 {
			return fmt.Sprintf("%s:%d: %s", name, 1+bytes.Count(text[:i], []byte("\n")), message)
		}
	}
	if err != nil {
		return fmt.Sprintf("%s:%d: %s", name, 1+bytes.Count(text[:at], []byte("\n")), message)
	}
	return name + ": " + message
}

// answerPlans answers requests for plans of a file: one document, or one request a line, in order.
func (a *app) answerPlans(ctx context.Context, in io.Reader, name string, lines bool) error {
	a.rememberTrials()
	flags := newPlanCmd(a).Flags()
	if !lines {
		text, err := io.ReadAll(io.LimitReader(in, longestRequest+1))
		if err != nil {
			return err
		}
		answer := a.answerPlan(ctx, flags, text)
		if answer.ExitCode == int(exitUsage) {
			answer.Message = withLineOfKey(name, text, answer.Message)
		}
		if err := report.WriteResponse(a.stdout, answer, true); err != nil || answer.ExitCode == 0 {
			return err
		}
		return commandError{errors.New(cmp.Or(answer.Message, "nothing fits")), exitCode(answer.ExitCode)}
	}
	return answerInOrder(bufio.NewScanner(in), func(n int, line []byte) *report.Response {
		answer := a.answerPlan(ctx, flags, line)
		if answer.ExitCode == int(exitUsage) {
			answer.Message = fmt.Sprintf("%s:%d: %s", name, n, answer.Message)
		}
		return answer
	}, func(answer *report.Response) error { return report.WriteResponse(a.stdout, answer, false) })
}

// answerPlan answers one request. An invalid request gets an answer, too.
func (a *app) answerPlan(ctx context.Context, flags *pflag.FlagSet, text []byte) *report.Response {
	r, err := parseRequest(text)
	if err != nil {
		return usageAnswer(err).response()
	}
	return a.runVerb(ctx, "plan", newPlanCmd, flags, r, report.JSON).response()
}

// answerInOrder answers lines, numbered from 1, concurrently and writes the answers in the order of the lines.
func answerInOrder[A any](in *bufio.Scanner, answer func(int, []byte) A, write func(A) error) error {
	in.Buffer(nil, longestRequest)
	pending := make(chan chan A, 4*runtime.GOMAXPROCS(0))
	var work, writer errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	writer.Go(func() (err error) {
		for each := range pending {
			if a := <-each; err == nil {
				err = write(a)
			}
		}
		return err
	})
	for n := 1; in.Scan(); n++ {
		line, to := bytes.Clone(in.Bytes()), make(chan A, 1)
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		pending <- to
		work.Go(func() error {
			to <- answer(n, line)
			return nil
		})
	}
	close(pending)
	return errors.Join(in.Err(), writer.Wait())
}
