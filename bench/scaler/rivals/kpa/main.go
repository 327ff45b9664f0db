// Command kpa lets Knative's own pod autoscaler decide over a simulated endpoint.
//
// The decision is knative.dev/serving/pkg/autoscaler/scaling, the averaging is pkg/autoscaler/aggregation; both run as
// they are. This file only stands where Knative has its scraper and its endpoint lister. Time comes with every line, so
// an hour takes as long as its lines.
//
//	s SECOND CONCURRENCY   one second's average of requests in the system, at the pods and at the activator
//	d SECOND READY         decide with so many ready pods; answered by "DESIRED EXCESS-BURST-CAPACITY"
//
// An answer may also be "hold" (Knative calls it an invalid result: nothing was seen yet) or "error" and why.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"knative.dev/serving/pkg/apis/autoscaling"
	"knative.dev/serving/pkg/autoscaler/aggregation"
	"knative.dev/serving/pkg/autoscaler/metrics"
	"knative.dev/serving/pkg/autoscaler/scaling"
)

const bucket = time.Second

// windows averages as Knative's metric collector does: the same values in a long and in a short window.
type windows struct {
	stable, panic *aggregation.TimedFloat64Buckets
}

func (w windows) record(at time.Time, concurrency float64) {
	w.stable.Record(at, concurrency)
	w.panic.Record(at, concurrency)
}

// StableAndPanicConcurrency answers as the collector does: no data at all is an error, never a zero.
func (w windows) StableAndPanicConcurrency(_ types.NamespacedName, now time.Time) (float64, float64, error) {
	if w.stable.IsEmpty(now) {
		return 0, 0, metrics.ErrNoData
	}
	return w.stable.WindowAverage(now), w.panic.WindowAverage(now), nil
}

func (w windows) StableAndPanicRPS(types.NamespacedName, time.Time) (float64, float64, error) {
	return 0, 0, metrics.ErrNoData
}

// pods counts the ready ones as the last line said.
type pods struct{ ready int }

func (p *pods) ReadyCount() (int, error)    { return p.ready, nil }
func (p *pods) NotReadyCount() (int, error) { return 0, nil }

// endpoint is one simulated endpoint; second 0 is the moment it was made, because Knative's constructor reads the clock.
type endpoint struct {
	began  time.Time
	seen   windows
	pods   *pods
	scaler scaling.UniScaler
	logger *zap.SugaredLogger
}

func newEndpoint(spec scaling.DeciderSpec, panicWindow time.Duration, ready int) *endpoint {
	seen := windows{
		stable: aggregation.NewTimedFloat64Buckets(spec.StableWindow, bucket),
		panic:  aggregation.NewTimedFloat64Buckets(panicWindow, bucket),
	}
	counter := &pods{ready: ready}
	return &endpoint{
		began:  time.Now().Truncate(bucket),
		seen:   seen,
		pods:   counter,
		scaler: scaling.New(*attribute.EmptySet(), noop.NewMeterProvider(), "bench", "rival", seen, counter, &spec),
		logger: zap.NewNop().Sugar(),
	}
}

// answer carries out one line and returns what is to be said, "" for nothing.
func (e *endpoint) answer(line string) string {
	words := strings.Fields(line)
	if len(words) != 3 {
		return fmt.Sprintf("error: want 3 words, got %q", line)
	}
	second, err := number(words[1])
	if err != nil {
		return fmt.Sprintf("error: second %q: %v", words[1], err)
	}
	at := e.began.Add(time.Duration(second * float64(time.Second)))
	switch words[0] {
	case "s":
		concurrency, err := number(words[2])
		if err != nil {
			return fmt.Sprintf("error: concurrency %q: %v", words[2], err)
		}
		e.seen.record(at, concurrency)
		return ""
	case "d":
		ready, err := strconv.Atoi(words[2])
		if err != nil || ready < 0 {
			return fmt.Sprintf("error: ready pods %q: want a count", words[2])
		}
		e.pods.ready = ready
		result := e.scaler.Scale(e.logger, at)
		if !result.ScaleValid {
			return "hold"
		}
		return fmt.Sprintf("%d %d", result.DesiredPodCount, result.ExcessBurstCapacity)
	default:
		return fmt.Sprintf("error: unknown word %q", words[0])
	}
}

func number(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err == nil && (math.IsNaN(value) || math.IsInf(value, 0) || value < 0) {
		err = fmt.Errorf("want a finite number from 0 up")
	}
	return value, err
}

func serve(e *endpoint, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	answers := bufio.NewWriter(out)
	for lines.Scan() {
		answer := e.answer(lines.Text())
		if answer == "" {
			continue
		}
		fmt.Fprintln(answers, answer)
		if err := answers.Flush(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// main takes what a revision may set; the defaults are those of Knative's ConfigMap config-autoscaler.
func main() {
	spec := scaling.DeciderSpec{ScalingMetric: autoscaling.Concurrency, Reachable: true}
	flag.Float64Var(&spec.TargetValue, "target", 70, "concurrency wanted per pod")
	flag.Float64Var(&spec.TotalValue, "total", 100, "concurrency that a pod can hold")
	flag.Float64Var(&spec.TargetBurstCapacity, "target-burst-capacity", 211, "burst to be held without queueing")
	flag.Float64Var(&spec.MaxScaleUpRate, "max-scale-up-rate", 1000, "largest growth, times the ready pods")
	flag.Float64Var(&spec.MaxScaleDownRate, "max-scale-down-rate", 2, "largest shrink, share of the ready pods")
	flag.Float64Var(&spec.PanicThreshold, "panic-threshold", 2, "load over ready capacity that begins a panic")
	flag.DurationVar(&spec.StableWindow, "stable-window", 60*time.Second, "long average")
	flag.DurationVar(&spec.ScaleDownDelay, "scale-down-delay", 0, "time before a shrink is carried out")
	panicWindow := flag.Duration("panic-window", 6*time.Second, "short average")
	ready := flag.Int("ready", 1, "ready pods at the start")
	flag.Parse()
	if err := serve(newEndpoint(spec, *panicWindow, *ready), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kpa:", err)
		os.Exit(1)
	}
}
