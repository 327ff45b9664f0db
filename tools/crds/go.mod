module berthmaster.dev/tools/crds

go 1.26.0

require (
	sigs.k8s.io/cluster-api v1.14.0
	sigs.k8s.io/karpenter v1.14.1
)
