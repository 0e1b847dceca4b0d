# bash completion for ferry: commands, options, files.

_ferry() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local commands='run check bench plan inspect doctor version help'

    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$current")
        return
    fi
    case $previous in
    --model | -m)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --svg)
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
        ;;
    --operation)
        mapfile -t COMPREPLY < <(compgen -W "all_reduce_sum all_gather_even all_gather_uneven variable_all_to_all \
            broadcast barrier failure_agreement send_receive" -- "$current")
        return
        ;;
    --sizes | --repeats | --target | --set | -s | --rank | -r | --fault | --top-logits)
        return
        ;;
    esac
    if [[ $current == -* ]]; then
        local options='--help'
        case $command in
        run) options+=' --set --json --quiet --logits-digest --top-logits --fault' ;;
        check) options+=' --set --json --quiet --fault' ;;
        bench) options+=' --set --json --svg --sizes --repeats --target --operation' ;;
        plan) options+=' --set --model --rank --json' ;;
        inspect | doctor | version) options+=' --json' ;;
        esac
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
        return
    fi
    case $command in
    help) mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current") ;;
    run | check | bench | plan) mapfile -t COMPREPLY < <(compgen -f -X '!*.y?(a)ml' -- "$current"; compgen -d -- "$current") ;;
    inspect) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    doctor) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    esac
}

complete -o filenames -F _ferry ferry
